"""Parameter objects keep their identity; in its run a module reads its slot, outside of it a weight
is its host master, whatever its dtype, strides and size, and however often it hangs in the model.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from itertools import count, product

import pytest
import safetensors.torch
import torch
from torch import nn

import runtime
from runtime import Offloaded
from schedule import Ring
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    as_bytes,
    assert_same_values,
    assert_unchanged,
    batches,
    named_schedules,
    outputs,
    picture,
    same,
    stack,
)

ALIGNMENT = 256


def rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def inside(parameter: torch.Tensor, block: torch.Tensor) -> bool:
    """Whether the parameter's bytes lie within the block, at an aligned offset."""
    offset = parameter.data_ptr() - block.data_ptr()
    size = parameter.untyped_storage().nbytes()
    return 0 <= offset <= offset + size <= block.numel() and offset % ALIGNMENT == 0


# ---- identity


@pytest.mark.parametrize(("modules", "slots"), [(1, 1), (5, 1), (5, 2), (5, 3), (4, 4), (3, 5)])
def test_parameters_are_the_same_objects_before_and_after(modules: int, slots: int) -> None:
    for schedule in named_schedules(Ring(modules, slots)):
        model = stack(modules, uneven=True)
        before = picture(model)
        with runtime.offload(model, slots=slots, policy=schedule):
            for _ in range(2):
                now = picture(model)
                assert all(now.parameters[n] is p for n, p in before.parameters.items())
                assert now.layout == before.layout
                assert_same_values(now.values, before.values)
                outputs(model, batches(1))
        assert_unchanged(model, before)


def test_gradients_and_attributes_of_parameters_stay() -> None:
    model = stack(3)
    weight = model.layers[1].up.weight
    weight.grad, weight.note = torch.ones_like(weight), "kept"
    grad = weight.grad
    with runtime.offload(model, slots=2):
        outputs(model, batches(1))
        assert model.layers[1].up.weight.note == "kept"
    assert model.layers[1].up.weight is weight
    assert (weight.grad is grad, weight.note, weight.requires_grad) == (True, "kept", True)


def test_in_its_run_every_parameter_lies_in_its_slot_and_outside_in_its_host_block() -> None:
    """At addresses that never change."""
    for schedule in named_schedules(Ring(5, 2)):
        model = stack(5, uneven=True)
        masters = dict(model.named_parameters())
        seen: dict[str, set[int]] = {}
        box: list[Offloaded] = []
        runs = count()

        def look(
            running: int,
            model: Stack,
            box: list[Offloaded],
            seen: dict[str, set[int]],
            masters: dict[str, nn.Parameter],
            runs: Iterator[int],
        ) -> None:
            arena, slot_of = box[0].arena, box[0].schedule.slot_of
            slot = arena.slots[slot_of[next(runs) % len(slot_of)]]
            for index, layer in enumerate(model.layers):
                for name, parameter in layer.named_parameters():
                    path = f"layers.{index}.{name}"
                    assert (parameter is masters[path]) == (index != running)
                    assert inside(
                        parameter, slot if index == running else arena.blocks[index][0].bytes
                    )
                    seen.setdefault(path, set()).add(parameter.data_ptr())

        for index, layer in enumerate(model.layers):
            layer.down.register_forward_pre_hook(
                lambda *_, args=(index, model, box, seen, masters, runs): look(*args)
            )
        with runtime.offload(model, slots=2, policy=schedule) as offloaded:
            box.append(offloaded)
            outputs(model, batches(4))
        assert len(seen) == 5 * 4
        # Its master's, and one over each slot that it runs from.
        assert all(len(addresses) == 1 + schedule.period for addresses in seen.values())


def test_every_parameter_has_a_storage_of_its_own_of_just_its_size() -> None:
    model = stack(3, uneven=True)
    with runtime.offload(model, slots=2) as offloaded:
        places = [place for one in offloaded.arena.sets.values() for place in one.places]
        tensors = [t for place in places for t in (place.host, place.device)]
        for tensor in tensors:
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
            assert tensor.storage_offset() == 0
        assert len({t.untyped_storage()._cdata for t in tensors}) == len(tensors)


def test_regions_of_a_module_do_not_overlap_and_fill_its_block() -> None:
    model = stack(3, uneven=True)
    with runtime.offload(model, slots=2) as offloaded:
        for index, layer in enumerate(model.layers):
            block = offloaded.arena.blocks[index][0].bytes
            spans = sorted(
                (p.data_ptr() - block.data_ptr(), p.untyped_storage().nbytes())
                for p in layer.parameters()
            )
            end = 0
            for offset, size in spans:
                assert offset == end
                end = offset + rounded(size)
            assert end == block.numel()


@pytest.mark.parametrize(("modules", "slots"), [(1, 1), (5, 2), (7, 3), (4, 4), (3, 5)])
def test_a_slot_is_as_large_as_the_largest_module_that_uses_it(modules: int, slots: int) -> None:
    for schedule in named_schedules(Ring(modules, slots)):
        model = stack(modules, uneven=True)
        sizes = [
            sum(rounded(p.numel() * p.element_size()) for p in layer.parameters())
            for layer in model.layers
        ]
        assert len(set(sizes)) == modules
        wanted = [
            max(
                (sizes[i % modules] for i, s in enumerate(schedule.slot_of) if s == slot),
                default=0,
            )
            for slot in range(slots)
        ]
        with runtime.offload(model, slots=slots, policy=schedule) as offloaded:
            assert [slot.numel() for slot in offloaded.arena.slots] == wanted
            assert offloaded.report().bytes_slots == sum(wanted)
            assert [block[0].bytes.numel() for block in offloaded.arena.blocks] == sizes


def swapping(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between device types whose tensors can't take one another's place."""
    monkeypatch.setattr(torch, "_has_compatible_shallow_copy_type", lambda *_: False)


def test_between_foreign_device_types_the_objects_stay_too(monkeypatch: pytest.MonkeyPatch) -> None:
    swapping(monkeypatch)
    model = stack(4, uneven=True)
    before = picture(model)
    wanted = outputs(copy.deepcopy(model), batches(2))
    for slots in (1, 2):
        with runtime.offload(model, slots=slots, policy="chain") as offloaded:
            now = picture(model)
            assert all(now.parameters[name] is p for name, p in before.parameters.items())
            for layer, (segment,) in zip(model.layers, offloaded.arena.blocks, strict=True):
                assert all(inside(p, segment.bytes) for p in layer.parameters())
            assert same(outputs(model, batches(2)), wanted)
        assert_unchanged(model, before)


# Mended: swap_tensors swaps all of the object, its attributes and its gradient too.
def test_between_foreign_device_types_attributes_and_gradients_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swapping(monkeypatch)
    test_gradients_and_attributes_of_parameters_stay()


# ---- state_dict and files


def test_state_dict_is_right_at_any_moment() -> None:
    """Before and after a pass, and from within every submodule of every module."""
    for schedule in named_schedules(Ring(4, 2)):
        model = stack(4, uneven=True)
        before = picture(model).values
        seen: list[dict[str, torch.Tensor]] = []
        for module in model.modules():
            module.register_forward_pre_hook(
                lambda *_, model=model, seen=seen: seen.append(picture(model).values)
            )
            module.register_forward_hook(
                lambda *_, model=model, seen=seen: seen.append(picture(model).values)
            )
        with runtime.offload(model, slots=2, policy=schedule):
            outputs(model, batches(2))
            for module in model.modules():  # these hooks run after those of the offload
                module.register_forward_hook(
                    lambda *_, model=model, seen=seen: seen.append(picture(model).values)
                )
            outputs(model, batches(1))
            seen.append(picture(model).values)
        assert len(seen) == 2 * 2 * 15 + 3 * 15 + 1
        for values in seen:
            assert_same_values(values, before)


def saved(model: nn.Module, how: str) -> bytes:
    state = model.state_dict()
    if how == "pickle":
        return pickle.dumps(state)
    if how == "safetensors":
        return safetensors.torch.save(state)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def loaded(data: bytes, how: str) -> dict[str, torch.Tensor]:
    if how == "pickle":
        return pickle.loads(data)
    if how == "safetensors":
        return safetensors.torch.load(data)
    return torch.load(io.BytesIO(data))


@pytest.mark.parametrize("how", ["torch.save", "pickle", "safetensors"])
def test_saved_files_are_right_and_no_larger(how: str) -> None:
    model = stack(5, uneven=True)
    before = picture(model).values
    plain = len(saved(model, how))
    with runtime.offload(model, slots=2):
        outputs(model, batches(1))
        data = saved(model, how)
        inside_run: list[bytes] = []
        model.layers[2].down.register_forward_hook(lambda *_: inside_run.append(saved(model, how)))
        outputs(model, batches(1))
    for each in (data, inside_run[0]):
        assert abs(len(each) - plain) < 0.02 * plain + 200
        assert_same_values(loaded(each, how), before)


def test_views_into_one_storage_would_make_larger_files() -> None:
    """Twin: the size does tell."""
    model = stack(5, uneven=True)
    plain = len(saved(model, "pickle"))
    with runtime.offload(model, slots=2) as offloaded:
        arena = offloaded.arena
        for one, (segment,) in zip(arena.sets.values(), arena.blocks, strict=True):
            block = segment.bytes
            for place in one.places:
                at = (place.host.data_ptr() - block.data_ptr()) // 4
                shape, stride = place.host.shape, place.host.stride()
                place.host.data = block.view(torch.float32).as_strided(shape, stride, at)
        assert len(saved(model, "pickle")) > 2 * plain


def test_load_state_dict_reads_what_was_saved_by_the_plain_model() -> None:
    model, other = stack(4, seed=1), stack(4, seed=2)
    with runtime.offload(model, slots=2):
        assert not same(outputs(model, batches(1)), outputs(other, batches(1)))
        model.load_state_dict(other.state_dict())
        assert same(outputs(model, batches(1)), outputs(other, batches(1)))
    assert_same_values(model.state_dict(), other.state_dict())


# ---- kinds of parameters


def bits(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Random bytes as that dtype; booleans are 0 or 1."""
    size = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
    raw = torch.randint(0, 256, (size,), dtype=torch.uint8)
    return (raw % 2 if dtype == torch.bool else raw).view(dtype).reshape(shape)


DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int64,
    torch.bool,
    torch.complex64,
]
KINDS: dict[str, Callable[[], torch.Tensor]] = {
    **{str(dtype): lambda dtype=dtype: bits((3, 5), dtype) for dtype in DTYPES},
    "transposed": lambda: torch.randn(6, 4).t(),
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
    "with gaps": lambda: torch.randn(8, 8)[::2, 1::3],
    "with gaps, a column": lambda: torch.randn(100, 3)[:, 1],
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "a slice with an offset": lambda: torch.randn(100)[50:60],
    "scalar": lambda: torch.randn(()),
    "one element, odd stride": lambda: torch.randn(1).as_strided((1, 1), (77, 13)),
    "empty": lambda: torch.empty(0),
    "empty, with a shape": lambda: torch.empty(3, 0, 2),
    "conjugated": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "negated": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
}


class Reader(nn.Module):
    """Copies what its parameters are, in its run."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        for position, tensor in enumerate(tensors):
            self.register_parameter(f"p{position}", nn.Parameter(tensor, requires_grad=False))
        self.seen: list[list[tuple[bytes, object]]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(self.read())
        return x

    def read(self) -> list[tuple[bytes, object]]:
        return [(as_bytes(p), (p.shape, p.stride(), p.dtype)) for p in self.parameters()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_parameter_is_right(kind: str) -> None:
    torch.manual_seed(0)
    make = KINDS[kind]
    # Something before and after it, so that its place matters.
    layers = [Reader(torch.randn(5), make(), make(), torch.randn(3)) for _ in range(3)]
    wanted = [layer.read() for layer in layers]
    model = nn.Sequential(*layers)
    before = picture(model)
    with runtime.offload(model, slots=1, policy="chain") as offloaded:
        for slot in offloaded.arena.slots:
            assert slot.numel() == max(block[0].bytes.numel() for block in offloaded.arena.blocks)
        outputs(model, batches(2))
        assert offloaded.report().copies == 6
    assert [layer.seen for layer in layers] == [[want, want] for want in wanted]
    assert_unchanged(model, before)


def test_a_module_whose_only_parameter_is_empty_can_be_offloaded() -> None:
    layers = [Reader(torch.empty(0)), Reader(torch.randn(4)), Reader(torch.empty(0, 3))]
    with runtime.offload(layers, slots=2, policy="chain") as offloaded:
        outputs(nn.Sequential(*layers), batches(2))
        assert offloaded.report().bytes_offloaded == 16


def test_parameters_with_and_without_gradients() -> None:
    model = stack(3)
    model.layers[1].up.weight.requires_grad_(False)
    before = picture(model)
    with runtime.offload(model, slots=2):
        assert picture(model).layout == before.layout
    assert_unchanged(model, before)


# ---- the same parameter in several places


class Twice(nn.Module):
    """One parameter under two names and in two submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH)
        self.b.weight = self.a.weight
        self.other_name = self.a.bias
        self.bad: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.a.weight is not self.b.weight or self.other_name is not self.a.bias:
            self.bad.append("torn apart")
        return torch.tanh(self.b(self.a(x)) + self.other_name)


def test_a_parameter_under_two_names_in_one_module_is_moved_once() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Twice() for _ in range(3)))
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        report = offloaded.report()
        assert report.bytes_offloaded == 3 * (WIDTH * WIDTH + 2 * WIDTH) * 4
        assert report.stay == ()
        assert not any(layer.bad for layer in model)
        assert all(layer.a.weight is layer.b.weight for layer in model)
    assert_unchanged(model, before)


def test_a_parameter_that_two_modules_share_stays() -> None:
    model = stack(4)
    model.layers[3].up.weight = model.layers[1].up.weight
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        report = offloaded.report()
        (name,) = report.stay
        assert name in ("layers.1.up.weight", "layers.3.up.weight")
        assert report.bytes_offloaded == (4 * 2 * (WIDTH + 1) * WIDTH - 2 * WIDTH * WIDTH) * 4
        assert report.bytes_whole == sum(p.numel() * 4 for p in model.parameters()) + WIDTH * 4
        assert f"shared     {name} stay on the device" in str(report)
        with torch.no_grad():
            model.layers[1].up.weight.mul_(2)
        assert not same(outputs(model, batches(2)), wanted)
    assert model.layers[3].up.weight is model.layers[1].up.weight
    before.values["layers.1.up.weight"] *= 2  # one tensor in the copy too
    assert_unchanged(model, before)


def test_a_parameter_shared_with_the_rest_of_the_model_stays() -> None:
    model = stack(4)
    model.head.weight = model.layers[2].down.weight
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        assert offloaded.report().stay == ("layers.2.down.weight",)
        assert model.head.weight is model.layers[2].down.weight
    assert_unchanged(model, before)


def test_a_submodule_that_two_modules_share_stays() -> None:
    model = stack(3)
    model.layers[2].down = model.layers[0].down
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        names = [name.split(".", 2)[2] for name in offloaded.report().stay]
        assert names == ["down.weight", "down.bias"]


def test_buffers_and_the_rest_are_not_touched_on_a_cpu() -> None:
    """They are on the device already: the same objects, at the same addresses."""
    model = Stack([nn.Sequential(Block(), nn.BatchNorm1d(WIDTH)) for _ in range(3)]).eval()
    wanted = outputs(copy.deepcopy(model), batches(2))

    def rest() -> list[tuple[int, int]]:
        tensors = [*model.buffers(), *model.embed.parameters(), *model.head.parameters()]
        small = [one for one in tensors if one.is_floating_point()]  # integers are offloaded
        return [(id(tensor), tensor.data_ptr()) for tensor in small]

    before = rest()
    for device in (None, "cpu"):
        with runtime.offload(model, slots=2, device=device):
            assert rest() == before
            assert same(outputs(model, batches(2)), wanted)
        assert rest() == before


def test_the_rest_is_moved_and_moved_back() -> None:
    """A CPU with a number counts as another device than the one without: enough to see that
    parameters stay the same objects, and that buffers come back."""
    model = Stack([Block() for _ in range(3)]).eval()
    model.head.weight = model.embed.weight  # hangs in two places, is moved once
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, device="cpu:0") as offloaded:
        moved = [name for _, name, _ in offloaded.placement._moved]
        assert {"weight", "bias", "scale"} <= set(moved)
        assert same(outputs(model, batches(2)), wanted)
        now = picture(model).parameters
        assert all(now[name] is parameter for name, parameter in before.parameters.items())
        assert_same_values(model.state_dict(), before.values)
    assert_unchanged(model, before)
    assert model.scale.device == before.values["scale"].device


def test_what_was_taken_out_beside_the_layers_is_not_moved_back() -> None:
    model = stack(3)
    before = {name: as_bytes(tensor) for name, tensor in model.state_dict().items()}
    with runtime.offload(model, slots=2, device="cpu:0"):
        model.head.bias = None
        del model._buffers["scale"]
    assert model.embed.weight.device == torch.device("cpu")
    now = {name: as_bytes(tensor) for name, tensor in model.state_dict().items()}
    assert now == {n: v for n, v in before.items() if n not in ("head.bias", "scale")}


def test_modules_of_modules_of_modules() -> None:
    """Every depth is bound."""

    def deep(depth: int) -> nn.Module:
        return nn.Sequential(Block(), deep(depth - 1)) if depth else Block()

    torch.manual_seed(0)
    model = Stack([deep(i) for i in range(4)]).eval()
    wanted = outputs(copy.deepcopy(model), batches(2))
    seen = []
    with runtime.offload(model, slots=1) as offloaded:
        slot = offloaded.arena.slots[0]
        for layer, part in product(model.layers, [Block, nn.Linear]):
            for module in layer.modules():
                if isinstance(module, part):
                    module.register_forward_pre_hook(
                        lambda module, _: seen.append(
                            all(inside(p, slot) for p in module.parameters())
                        )
                    )
        assert same(outputs(model, batches(2)), wanted)
    assert len(seen) == 2 * 3 * (1 + 2 + 3 + 4)
    assert all(seen)
