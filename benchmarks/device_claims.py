"""What the plan says of policies, measured: passes in units of one module's compute, where a copy
takes two of them.

The plan is the program itself on an axis of time where a run takes one unit, a copy two, a fence
none. It says that with K=4 and N=9 or 10 a pass takes 15 or 16 units where two modules are kept and
the rest is shuttled, and 19 or 20 by vLLM's slot-local rule. A graph joins the wrap before its end,
which takes from the time to hide it in: at most 17 or 19, against 19 or 21.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

import runtime
from benchmarks.device_calibration import size_text
from benchmarks.device_measure import Whole, copies, passes
from benchmarks.device_passes import CAPTURED, EAGER, Subject, measured
from benchmarks.device_rows import Row, guarded
from benchmarks.device_sizes import Bench
from runtime import memory
from runtime.host import empty_bytes
from schedule import Ring, policies
from schedule.costs import equal_times
from schedule.errors import OffloadError
from schedule.timing import steady

CLAIMS = "claims"
SLOTS, RATIO = 4, 2
POLICIES = ("slot_local", "balanced", "double_buffer")
MODULES = (9, 10)
TRIED = 8
"""Multiplications by which one is timed."""
TOKENS = 64


class Unit(nn.Module):
    """Multiplies by its weight so many times; the ballast is only copied."""

    def __init__(self, width: int, times: int, ballast: int, device: torch.device) -> None:
        super().__init__()
        self.times = times
        weight = torch.empty(width, width, dtype=torch.bfloat16, device=device)
        weight.normal_(std=width**-0.5)
        self.weight = nn.Parameter(weight, requires_grad=False)
        extra = torch.zeros(ballast, dtype=torch.bfloat16, device=device)
        self.ballast = nn.Parameter(extra, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = x @ self.weight
        return x


@dataclass(frozen=True, slots=True)
class Tuned:
    """times: of a unit's multiplications.   ballast: its further elements.   bytes: of a block.
    ratio: seconds of a block's copy to those of a unit."""

    times: int
    ballast: int
    bytes: int
    ratio: float


def claims(bench: Bench) -> Iterator[Row]:
    """By N, policy, and whether a pass is captured."""
    if bench.peak is None:
        raise OffloadError("the copy peak is not known, as the calibration failed; run it again")
    width = bench.sizes.width * 4
    tuned = _tuned(bench, width)
    memory.require(MODULES[-1] * tuned.bytes, "the modules of the plan's claims, on the host")
    for modules in MODULES:
        model = _units(modules, width, tuned, bench)
        x = torch.ones(TOKENS, width, dtype=torch.bfloat16, device=bench.device)
        whole = Whole(passes(partial(model, x), bench).seconds, model(x), modules)
        note = f"copy / compute {tuned.ratio:.2f}, blocks of {size_text(tuned.bytes)}"
        one = Subject(partial(model, x), whole, note)
        for policy in POLICIES:
            what = f"N={modules}, K={SLOTS}, {policy}"
            yield from guarded(CLAIMS, what, partial(_rows, bench, what, model, one, policy))


def planned(policy: str, modules: int, how: str) -> int:
    """Units of a pass among others, by the schedule's own program."""
    schedule = policies.named(policy)(Ring(modules, SLOTS))
    time = steady(schedule, equal_times(modules, copy=RATIO), how == CAPTURED).time
    assert time.denominator == 1, "whole units"
    return int(time)


def _units(modules: int, width: int, tuned: Tuned, bench: Bench) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        units = (Unit(width, tuned.times, tuned.ballast, bench.device) for _ in range(modules))
        return nn.Sequential(*units).eval()


def _tuned(bench: Bench, width: int) -> Tuned:
    """How often a unit must multiply to take the time that is asked for, about; and how long its
    block must be, so that its copy takes RATIO times what the unit then takes."""
    assert bench.peak is not None
    bare = _units(MODULES[0], width, Tuned(TRIED, 0, 0, 0), bench)
    x = torch.ones(TOKENS, width, dtype=torch.bfloat16, device=bench.device)
    call = partial(bare, x)
    one = passes(call, bench).seconds / (MODULES[0] * TRIED)
    times = max(1, round(bench.sizes.unit / one)) if one else 1
    for unit in bare:
        assert isinstance(unit, Unit)
        unit.times = times
    unit_seconds = passes(call, bench).seconds / MODULES[0]
    weight, element = width * width, torch.bfloat16.itemsize
    wanted = min(int(RATIO * unit_seconds * bench.peak), bench.sizes.block) // element
    ballast = max(0, wanted - weight)
    size = (weight + ballast) * element
    host = empty_bytes(size, pin_memory=True).zero_()
    there = torch.empty(size, dtype=torch.uint8, device=bench.device)
    copied = copies(lambda: there.copy_(host, non_blocking=True), bench)
    return Tuned(times, ballast, size, copied / unit_seconds if unit_seconds else 0.0)


def _rows(
    bench: Bench, what: str, model: nn.Sequential, one: Subject, policy: str
) -> Iterator[Row]:
    unit = one.whole.seconds / one.whole.layers
    with runtime.offload(
        model, list(model), slots=SLOTS, policy=policy, device=bench.device
    ) as offloaded:
        for how in (EAGER, CAPTURED):
            full, plan = f"{what}, {how}", planned(policy, one.whole.layers, how)
            rows = partial(measured, bench, CLAIMS, full, offloaded, one, how)
            for row in guarded(CLAIMS, full, rows):
                units = row.seconds / unit if row.seconds and unit else None
                yield replace(row, units=units, planned=plan)
