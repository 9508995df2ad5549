"""A module's number, before its weights and behind them: in its host block, whatever memory that
is, and in its slot whenever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.host import HostMemory, empty_bytes
from runtime.layout import Segment, lay_out
from runtime.locked import Registered, Slabs, host_memory
from runtime.registration import Registration
from runtime.sets import DeviceSet
from tests.runtime.changes import adapted, another_name, deleted, larger, replaced
from tests.runtime.models import Block, Stack, batches, outputs, same, stack
from tests.runtime.test_runtime_reordered import NAMES, backwards
from tests.runtime.weights import Counting, Quantised, Tables

# ---- host memories


def memories(monkeypatch: pytest.MonkeyPatch, kind: type[HostMemory]) -> list[HostMemory]:
    """From now on that is what is made for an offload to this CPU, and noted here."""
    made: list[HostMemory] = []
    offer = Registration(lambda *_: None, lambda _: None) if kind is Registered else None
    locks = kind is not HostMemory

    def memory(layouts: object, schedule: object, streams: object, limit: int) -> HostMemory:
        device, synchronize = streams.device, streams.synchronize
        streams = SimpleNamespace(locks=locks, device=device, synchronize=synchronize)
        made.append(host_memory(layouts, schedule, streams, limit))
        return made[-1]

    monkeypatch.setattr("runtime.placement.host_memory", memory)
    monkeypatch.setattr("runtime.locked.registration_of", lambda _: offer)
    monkeypatch.setattr("runtime.locked.empty_bytes", lambda size, **_: empty_bytes(size))
    monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: None, raising=False)
    return made


@pytest.fixture(params=[HostMemory, Slabs, Registered])
def hosts(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[type[HostMemory]]:
    """The kind of host memory of whatever is offloaded in the test."""
    made = memories(monkeypatch, request.param)
    yield request.param
    assert made
    assert {type(one) for one in made} == {request.param}
    assert sum(one.bytes_locked for one in made) == 0  # of what was closed


# ---- models


def mixed() -> Stack:
    """Modules of all kinds of weights, each of another size; and two whose last tensor leaves no
    room for the number, for it ends its 256 bytes, or is empty."""
    torch.manual_seed(0)
    layers = [Block(), Quantised(40), Tables(), Block(200), Counting(False), Full(), Bare()]
    return Stack(layers).eval()


class Full(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale[: x.shape[-1]]


class Bare(Full):
    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.empty(0))


def uneven() -> Stack:
    return stack(6, uneven=True)


# ---- what is there


def number(memory: torch.Tensor, offset: int) -> int:
    """The eight bytes from there on."""
    return int.from_bytes(memory[offset : offset + 8].tolist(), "little")


def whole(block: Sequence[Segment]) -> torch.Tensor:
    """A copy of the bytes of a block."""
    starts = [segment.offset for segment in block]
    sizes = [segment.bytes.numel() for segment in block]
    assert starts == [sum(sizes[:at]) for at in range(len(sizes))]
    return torch.cat([segment.bytes for segment in block])


def assert_numbered(offloaded: Offloaded) -> None:
    """Each block is of its layout's size, and begins and ends with its module's number."""
    arena = offloaded.arena
    assert len(arena.blocks) == offloaded.schedule.ring.modules
    for module, (layout, block) in enumerate(zip(arena.layouts, arena.blocks, strict=True)):
        memory = whole(block)
        assert memory.numel() == layout.size
        assert (number(memory, 0), number(memory, layout.end)) == (module, module)
        # Between them the weights, and behind them less than the next 256 bytes.
        spans = [(r.offset, r.offset + r.size) for _, r in layout.leaves]
        assert all(256 <= start <= end <= layout.end for start, end in spans)
        assert layout.end + 8 <= layout.size < layout.end + 8 + 256


Found = list[tuple[int, int, int]]


def watched(offloaded: Offloaded) -> Found:
    """Of each run: its module, and the numbers in the slot that it runs from."""
    arena, bind, found = offloaded.arena, offloaded.arena.bind, Found()

    def looking(weights: DeviceSet) -> None:
        module, slot = next(run for run, one in arena.sets.items() if one is weights)
        arena.require_on_device(module, slot)
        memory = arena.slots[slot]
        found.append((module, number(memory, 0), number(memory, arena.layouts[module].end)))
        bind(weights)

    arena.bind = looking  # type: ignore[method-assign]
    return found


def passes_of(modules: int, passes: int = 1) -> Found:
    """What is found if every module finds its own."""
    return [(module, module, module) for module in range(modules)] * passes


# ---- in the blocks and in the slots


@pytest.mark.parametrize("make", [uneven, mixed])
@pytest.mark.parametrize(
    ("policy", "slots", "chunk"),
    [("chain", 1, None), ("balanced", 3, "64KiB"), ("rotating", 2, None), ("restart", 2, "64KiB")],
)
def test_blocks_and_slots_begin_and_end_with_the_number(
    hosts: type[HostMemory],
    make: Callable[[], Stack],
    policy: str,
    slots: int,
    chunk: str | None,
) -> None:
    model = make()
    modules, wanted = len(model.layers), outputs(make(), batches(4))
    with runtime.offload(model, slots=slots, policy=policy, chunk=chunk) as offloaded:
        assert (offloaded.placement.bytes_host[0] > 0) == (hosts is not HostMemory)
        # A module may lie in two slabs: its first number in one, and its last in another.
        segments = max(map(len, offloaded.arena.blocks))
        assert (segments > 1) == (hosts is Slabs)
        assert_numbered(offloaded)
        found = watched(offloaded)
        assert same(outputs(model, batches(4)), wanted)
        assert found == passes_of(modules, 4)
        assert_numbered(offloaded)
        report = offloaded.report()
        assert (report.runs, report.misses) == (4 * modules, 0)
        assert report.copies >= 4 * (modules - slots)


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("change", [replaced, larger, adapted, deleted, another_name])
def test_a_change_that_is_adopted_is_numbered(change: Callable[[Stack], None]) -> None:
    model = uneven()
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        outputs(model, batches(1))
        torch.manual_seed(1)
        change(model)
        offloaded.refresh()
        assert_numbered(offloaded)
        found, copies = watched(offloaded), offloaded.report().copies
        given = outputs(model, batches(2))
        assert found == passes_of(6, 2)
        assert offloaded.report().copies > copies
        assert_numbered(offloaded)
    assert same(given, outputs(model, batches(2)))


@pytest.mark.usefixtures("hosts")
@pytest.mark.parametrize("policy", ["chain", "rotating"])
def test_in_another_order_modules_have_other_numbers(policy: str) -> None:
    model = backwards()
    wanted = outputs(backwards(), batches(3))
    with runtime.offload(model, slots=2, policy=policy) as offloaded:
        assert_numbered(offloaded)
        blocks = dict(zip(offloaded.selection.names, offloaded.arena.blocks, strict=True))
        assert [number(whole(blocks[name]), 0) for name in NAMES] == [5, 4, 3, 2, 1, 0]
        assert same(outputs(model, batches(1)), wanted[:1])
        assert offloaded.selection.names == NAMES
        assert_numbered(offloaded)
        assert [number(whole(blocks[name]), 0) for name in NAMES] == [0, 1, 2, 3, 4, 5]
        found, copies = watched(offloaded), offloaded.report().copies
        assert same(outputs(model, batches(3)), wanted)
        assert found == passes_of(6, 3)
        assert offloaded.report().copies > copies
        model.layers[0].up.weight = nn.Parameter(model.layers[0].up.weight.detach().clone())
        offloaded.refresh()
        assert_numbered(offloaded)
        assert same(outputs(model, batches(3)), wanted)
        assert found == passes_of(6, 6)


@pytest.mark.parametrize(
    ("size", "end", "block"),
    [
        (0, 256, 512),
        (1, 264, 512),
        (247, 504, 512),
        (248, 504, 512),  # the last ones that leave room
        (249, 512, 768),
        (256, 512, 768),
        (257, 520, 768),
    ],
)
def test_the_last_number_is_in_the_padding_if_there_is_room(
    size: int, end: int, block: int
) -> None:
    module = nn.Module()
    module.register_buffer("bytes", torch.zeros(size, dtype=torch.uint8))
    layout = lay_out(module, "one", frozenset())
    assert (layout.end, layout.size, layout.weights) == (end, block, size)
