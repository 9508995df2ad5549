"""Small models to offload, and what the tests look at before and after."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from schedule import Ring, Schedule, policies
from schedule.policy import NAMED
from schedule.table import RUN, Moment, Refills

WIDTH = 8


# ---- layers and models


class Block(nn.Module):
    """A residual layer; its inner width sets its size."""

    def __init__(self, inner: int = WIDTH) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, inner)
        self.down = nn.Linear(inner, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Stack(nn.Module):
    """An input layer, the blocks to offload, an output layer, a buffer."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.full((WIDTH,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x) * self.scale


class Walked(nn.Module):
    """Runs its layers in any order."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
        for index in order:
            x = self.layers[index](x)
        return x


def stack(modules: int, *, uneven: bool = False, seed: int = 0) -> Stack:
    """A model of that many blocks; ``uneven`` makes them of several sizes."""
    torch.manual_seed(seed)
    inner = [WIDTH + 24 * (i * 5 % 7) if uneven else WIDTH for i in range(modules)]
    return Stack(map(Block, inner)).eval()


def batches(passes: int, seed: int = 1) -> list[torch.Tensor]:
    """A different input for each pass."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(3, WIDTH, generator=generator) for _ in range(passes)]


def outputs(model: nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """One pass an input, without gradients."""
    with torch.no_grad():
        return [model(x) for x in inputs]


def same(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Bit for bit: NaN differs from everything."""
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


_numbers = count(1 << 20)


class Seer(nn.Module):
    """A layer whose weight is a number that no other Seer of this process has ever had. It
    notes the number that it sees when it runs."""

    def __init__(self, log: list[tuple[Seer, float]], size: int = 4) -> None:
        super().__init__()
        self.number = float(next(_numbers))
        self.weight = nn.Parameter(torch.full((size,), self.number))
        self.log = log

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.weight.unique()
        self.log.append((self, seen.item() if seen.numel() == 1 else float("nan")))
        return x


def wrong(log: Sequence[tuple[Seer, float]]) -> list[int]:
    """The positions in the log at which a layer saw another number than its own."""
    return [at for at, (seer, seen) in enumerate(log) if seen != seer.number]


def before_run(module: nn.Module, action: Callable[[], object]) -> RemovableHandle:
    """Do this whenever the module is about to run."""

    def hook(*_: object) -> None:
        action()

    return module.register_forward_pre_hook(hook)


def after_run(module: nn.Module, action: Callable[[], object]) -> RemovableHandle:
    """Do this whenever the module ran."""

    def hook(*_: object) -> None:
        action()

    return module.register_forward_hook(hook)


# ---- schedules


def named_schedules(ring: Ring) -> Iterable[Schedule]:
    """The named policies that are safe for this ring."""
    for policy in NAMED.values():
        if ring.slots >= policy.least_slots and not (policy is policies.modular and fails(ring)):
            yield policy(ring)


def fails(ring: Ring) -> bool:
    """Whether the policy ``modular`` is wrong for this ring."""
    return 1 < ring.slots < ring.modules and ring.modules % ring.slots != 0


def walk_in_order(schedule: Schedule, order: Iterable[int]) -> Iterator[tuple[int, Refills]]:
    """For modules that run in this order, without the root: each one's step of the period, and
    the refills on enter if a pass begins with it, as it does where a module is no later than the
    one before. ``order`` must not reach the refills on leave, if there are any."""
    number, before = -1, schedule.ring.modules
    assert not any(schedule.leave)
    for module in order:
        begins = module <= before
        number = (number + begins) % schedule.period
        yield number * schedule.ring.modules + module, schedule.enter[number] if begins else ()
        before = module


def misses(schedule: Schedule, order: Iterable[int]) -> int:
    """How often a module is not resident if the modules run in this order, without the root."""
    holds: dict[int, int] = dict(schedule.preload)
    missed = 0
    for step, enter in walk_in_order(schedule, order):
        slot, module = schedule.slot_of[step], step % schedule.ring.modules
        holds.update(enter)
        holds.update(schedule.before[step])
        missed += holds.get(slot) != module
        holds[slot] = module
        holds.update(schedule.after[step])
    return missed


def moments_of(schedule: Schedule, passes: int) -> list[Moment]:
    """The walk over the preload and that many passes, which need not be whole periods."""
    periods = -(-passes // schedule.period)
    last = passes * schedule.ring.modules
    return [moment for moment in schedule.walk(periods) if moment.step < last]


def copies_in(schedule: Schedule, passes: int) -> int:
    """How many refills that many passes issue, the preload apart."""
    refills = [moment for moment in moments_of(schedule, passes) if moment.half != RUN]
    return len(refills) - len(schedule.preload)


def shares_slots(schedule: Schedule) -> bool:
    """Whether several modules run from one slot."""
    runs = {(slot, step % schedule.ring.modules) for step, slot in enumerate(schedule.slot_of)}
    return len(runs) > len(set(schedule.slot_of))


LOADS_EVERY_PASS = ("restart", "one_ahead", "on_demand")
"""Policies that copy each module in the pass in which it runs."""


# ---- sizes


def rounded(size: int, to: int = 256) -> int:
    """The next multiple."""
    return -(-size // to) * to


def block_of(sizes: Iterable[int]) -> int:
    """Bytes of the host block of tensors of so many bytes: the module's number in the first 256,
    each tensor from a multiple of 256 on, and the number once more in the next eight bytes behind
    the last one."""
    *others, last = sizes
    return 256 + sum(map(rounded, others)) + rounded(rounded(last, 8) + 8)


def block_bytes(module: nn.Module) -> int:
    """Bytes of its host block, if its parameters are all that is offloaded."""
    return block_of(p.nbytes for p in module.parameters())


# ---- what a model is


def hook_count(model: nn.Module) -> int:
    """How many forward hooks of any kind hang in the model."""
    tables = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called")
    tables += ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    return sum(len(getattr(module, table)) for module in model.modules() for table in tables)


@dataclass(frozen=True)
class Picture:
    """What must be the same after an offload: objects, values, layout, hooks."""

    parameters: dict[str, nn.Parameter]
    values: dict[str, torch.Tensor]
    layout: dict[str, tuple[object, ...]]
    hooks: int


def picture(model: nn.Module) -> Picture:
    """The model as it is now."""
    return Picture(
        parameters=dict(model.named_parameters(remove_duplicate=False)),
        values=copy.deepcopy(dict(model.state_dict())),
        layout={name: layout(p) for name, p in model.named_parameters()},
        hooks=hook_count(model),
    )


def layout(tensor: torch.Tensor) -> tuple[object, ...]:
    """Everything but a tensor's values and place."""
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)


def assert_unchanged(model: nn.Module, before: Picture) -> None:
    """The same Parameter objects, values, layouts and number of hooks."""
    now = picture(model)
    assert now.parameters.keys() == before.parameters.keys()
    for name, parameter in now.parameters.items():
        assert parameter is before.parameters[name], name
    assert_same_values(now.values, before.values)
    assert now.layout == before.layout
    assert now.hooks == before.hooks


def assert_same_values(now: dict[str, torch.Tensor], before: dict[str, torch.Tensor]) -> None:
    """Two state dicts are equal bit for bit."""
    assert now.keys() == before.keys()
    for name, tensor in now.items():
        assert as_bytes(tensor) == as_bytes(before[name]), name


def as_bytes(tensor: torch.Tensor) -> bytes:
    """A tensor's elements as bytes, in order, for every dtype."""
    plain = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    return ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size())
