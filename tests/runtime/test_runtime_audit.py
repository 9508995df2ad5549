"""Traces of real runs: saved, read back, and audited. All that the runtime does fits."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import runtime
from schedule import ModuleNotResident, Ring, Schedule
from schedule.audit import Audited, audit
from schedule.operations import Write
from schedule.program import lower
from schedule.trace import Trace
from schedule.tracefile import parse, read
from tests.runtime.models import Stack, after_run, batches, before_run, named_schedules, outputs
from tests.runtime.models import stack as plain_stack
from tests.runtime.test_runtime_nested import LEAVING, hosts
from tests.runtime.test_runtime_trace import everywhere

SIZES = [(1, 1), (3, 1), (3, 2), (5, 3), (4, 4)]
NAMED = [schedule for size in SIZES for schedule in named_schedules(Ring(*size))]
SCHEDULES = [*NAMED, everywhere(), LEAVING]
BY_NAME = pytest.mark.parametrize(
    "schedule", SCHEDULES, ids=lambda s: f"{s.policy}-{s.ring.modules}-{s.ring.slots}"
)


def again(trace: Trace) -> Trace:
    """The trace from its file."""
    return parse("".join(f"{line}\n" for line in trace.lines()).encode())


def audited(trace: Trace) -> Audited:
    """The audit of the trace from its file, which fits."""
    found = audit(again(trace))
    assert found.fits, str(found)
    return found


def copies_of(schedule: Schedule, passes: int) -> int:
    """How many copies that many passes issue, from the start of a period."""
    walk = schedule.walk(passes)  # as many periods, so more passes than enough
    last = passes * schedule.ring.modules
    moments = [m for m in walk if m.half not in ("preload", "run")]
    return sum(moment.step < last for moment in moments)


def run(model: Stack, index: int) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.layers[index](batches(1)[0])
    return found


@BY_NAME
def test_a_saved_trace_is_read_back_as_it_was(schedule: Schedule, tmp_path: Path) -> None:
    model = plain_stack(schedule.ring.modules)
    with runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded:
        outputs(model, batches(1))
        with offloaded.trace() as trace:
            outputs(model, batches(2))
            run(model, -1)
    trace.save(tmp_path / "trace.jsonl")
    assert read(tmp_path / "trace.jsonl") == trace
    assert trace.schedule == schedule
    assert (trace.device, trace.running) == ("cpu", ())
    assert [issued.operation for issued in trace.issued] == trace.operations


@BY_NAME
def test_passes_in_order_fit(schedule: Schedule) -> None:
    ring = schedule.ring
    for bare in (False, True):
        model = plain_stack(ring.modules)
        offload = runtime.offload(
            model.layers if bare else model, slots=ring.slots, policy=schedule
        )
        with offload as offloaded, offloaded.trace() as trace:
            outputs(model, batches(3))
        found = audited(trace)
        assert (found.passes, found.misses, found.abandoned) == (3, 0, 0)
        assert (found.runs, found.copies) == (3 * ring.modules, copies_of(schedule, 3))
        assert found.operations == len(trace.issued) > 0


@BY_NAME
def test_a_trace_with_its_preload_fits(schedule: Schedule) -> None:
    """The runtime issues it while it wraps, before a trace can begin; here it is put before."""
    trace = Trace("cpu", schedule, (-1,) * schedule.ring.slots)
    trace.issued = list(lower(schedule).parts()["preload"][0])
    model = plain_stack(schedule.ring.modules)
    with runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded:
        with offloaded.trace() as rest:
            outputs(model, batches(2))
        trace.issued += rest.issued
    assert audited(trace).copies == len(schedule.preload) + copies_of(schedule, 2)


ORDERS = {
    "skipped": [0, 2, 0, 1, 2, 1],
    "repeated": [0, 0, 1, 1, 1, 2, 2],
    "reversed": [2, 1, 0, 2, 1, 0],
    "mixed": [1, 2, 0, 2, 0, 1, 0, 1, 2],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_modules_in_any_order_fit_with_their_misses(order: list[int]) -> None:
    for schedule in (s for s in SCHEDULES if s.ring.modules >= 3):
        model = plain_stack(schedule.ring.modules)
        with (
            runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded,
            offloaded.trace() as trace,
        ):
            for index in order:
                run(model, index)
            outputs(model, batches(1))
        found = audited(trace)
        assert found.misses == offloaded.report().misses
        assert found.runs == offloaded.report().runs


@BY_NAME
def test_modules_inside_others_fit(schedule: Schedule) -> None:
    modules = schedule.ring.modules
    for outer in range(modules):
        model = hosts(modules)
        insides: list[Callable[[torch.Tensor], torch.Tensor]] = [model, *model.layers]
        with (
            runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded,
            offloaded.trace() as trace,
        ):
            for inside in insides:
                model.layers[outer].inner = (inside,)
                outputs(model, batches(1))
            model.layers[0].inner = (model.layers[-1],)
            model.layers[-1].inner = (model.layers[modules // 2],)
            run(model, 0)
        assert audited(trace).misses == offloaded.report().misses


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
@BY_NAME
def test_abandoned_passes_fit(schedule: Schedule, kind: type[BaseException]) -> None:
    """An exception comes to the hook after its module, a KeyboardInterrupt does not."""

    def fail(_: torch.Tensor) -> torch.Tensor:
        raise kind("planned")

    modules = schedule.ring.modules
    model = hosts(modules)
    with (
        runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded,
        offloaded.trace() as trace,
    ):
        for index in range(modules):
            model.layers[index].inner = (fail,)
            with pytest.raises(kind, match="planned"):
                outputs(model, batches(1))
            outputs(model, batches(1))
    found = audited(trace)
    assert found.misses == offloaded.report().misses
    cut_short = ((2 * index % schedule.period) * modules + index for index in range(modules))
    lost = sum(bool(schedule.after[step]) for step in cut_short)
    assert found.abandoned == (lost if kind is KeyboardInterrupt else 0)


def adventure(model: Stack, chance: random.Random, depth: int = 0) -> None:
    """A pass or a module, with others inside, failing here and there, writing here and there."""
    layers = list(model.layers)

    def inside(x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(ValueError):
            adventure(model, chance, depth + 1)
        if chance.random() < 0.15:
            raise chance.choice([ValueError, KeyboardInterrupt])("planned")
        return x

    for layer in layers:
        if depth < 2 and chance.random() < 0.3:
            layer.inner = (inside,)
    if chance.random() < 0.2:
        chance.choice(layers).up.bias.add_(1)
    if chance.random() < 0.3:
        model(batches(1)[0])
    else:
        chance.choice(layers)(batches(1)[0])


@pytest.mark.parametrize("seed", range(4))
def test_random_runs_fit(seed: int) -> None:
    chance = random.Random(seed)
    misses = abandoned = writes = 0
    for schedule in SCHEDULES:
        model = hosts(schedule.ring.modules)
        layer = chance.choice(list(model.layers))
        before_run(layer.down, lambda up=layer.up: up.bias.add_(1))
        root = chance.random() < 0.5
        with (
            torch.no_grad(),
            runtime.offload(
                model if root else model.layers, slots=schedule.ring.slots, policy=schedule
            ) as offloaded,
        ):
            for _ in range(chance.randrange(3)):
                with contextlib.suppress(ValueError, KeyboardInterrupt):
                    adventure(model, chance)
            before = offloaded.report().misses
            with offloaded.trace() as trace:
                for _ in range(6):
                    with contextlib.suppress(ValueError, KeyboardInterrupt):
                        adventure(model, chance)
        found = audited(trace)
        assert found.misses == offloaded.report().misses - before
        misses, abandoned = misses + found.misses, abandoned + found.abandoned
        writes += sum(isinstance(operation, Write) for operation in trace.operations)
    assert min(misses, abandoned, writes) > 0


@BY_NAME
def test_a_trace_that_begins_and_ends_within_runs_fits(schedule: Schedule) -> None:
    """It knows what ran when it began, and needs no end of what ran when it ended."""
    modules = schedule.ring.modules
    for first in range(modules):
        model = plain_stack(modules)
        with (
            runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded,
            contextlib.ExitStack() as open_,
        ):
            traces: list[Trace] = []
            begin = before_run(
                model.layers[first].down,
                lambda o=offloaded, e=open_, t=traces: t.append(e.enter_context(o.trace())),
            )
            outputs(model, batches(1))
            begin.remove()
            end = before_run(model.layers[modules // 2].up, open_.close)
            outputs(model, batches(1))
            end.remove()
        assert traces[0].running == (first,)
        assert traces[0].issued
        audited(traces[0])


def test_a_guard_that_raises_leaves_a_trace_that_fits() -> None:
    schedule = everywhere(3)
    model = plain_stack(3)
    with (
        runtime.offload(model, slots=3, policy=schedule, on_miss="raise") as offloaded,
        offloaded.trace() as trace,
    ):
        outputs(model, batches(1))
        model.layers[1].up.weight.data.add_(1)
        with torch.no_grad():
            handle = after_run(model.embed, lambda: model.layers[2].up.weight.add_(1))
            outputs(model, batches(1))  # refilled before it
            handle.remove()
    audited(trace)
    chain = plain_stack(3)
    with (
        runtime.offload(chain, slots=1, policy="chain", on_miss="raise") as offloaded,
        offloaded.trace() as trace,
    ):
        run(chain, 0)
        with pytest.raises(ModuleNotResident):
            run(chain, 0)
        run(chain, 1)
    assert audited(trace).misses == 0
