"""The program is interpreted one for one: what is issued is what was lowered, in that order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.interpreter import Interpreter
from runtime.unverified import offload_without_proof
from schedule import OffloadError, Refill, Ring, Schedule
from schedule.operations import COMPUTE, Issued, Operation, Wait, landed
from schedule.program import Program, lower, lower_refills
from tests.runtime.models import (
    LOADS_EVERY_PASS,
    WIDTH,
    Stack,
    batches,
    before_run,
    misses,
    named_schedules,
    outputs,
    stack,
    walk_in_order,
)

SIZES = [(1, 1), (3, 1), (3, 2), (5, 2), (5, 3), (4, 4), (3, 5)]
SCHEDULES = [schedule for size in SIZES for schedule in named_schedules(Ring(*size))]


def everywhere(modules: int = 3) -> Schedule:
    """Safe, with refills in every half of every boundary, all of them useless."""
    slots = tuple(range(modules))
    own = tuple((Refill(slot, slot),) for slot in slots)
    all_ = tuple(Refill(slot, slot) for slot in slots)
    return Schedule(
        ring=Ring(modules, modules),
        policy="everywhere",
        slot_of=slots,
        preload=all_,
        enter=(all_[1:],),
        before=own,
        after=(*own[1:], own[0]),
        leave=(all_[::-1],),
    )


def traced(model: nn.Module, offloaded: Offloaded, passes: int) -> list[Operation]:
    with offloaded.trace() as trace:
        outputs(model, batches(passes))
    return trace.operations


@pytest.mark.parametrize(
    "schedule", [*SCHEDULES, everywhere()], ids=lambda s: f"{s.policy}-{s.ring}"
)
def test_a_pass_issues_exactly_the_period_of_the_program(schedule: Schedule) -> None:
    model = stack(schedule.ring.modules)
    with runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded:
        for periods in (1, 3):
            wanted = list(lower(schedule).period()) * periods
            assert traced(model, offloaded, periods * schedule.period) == wanted
        assert offloaded.report().misses == 0


def test_a_bare_list_issues_the_same() -> None:
    """There, a pass begins before the first module and ends after the last one."""
    for schedule in [*SCHEDULES, everywhere()]:
        model = stack(schedule.ring.modules)
        slots = schedule.ring.slots
        with runtime.offload(model.layers, slots=slots, policy=schedule) as offloaded:
            wanted = list(lower(schedule).period()) * 2
            assert traced(model, offloaded, 2 * schedule.period) == wanted


def test_the_preload_is_issued_once_while_wrapping(monkeypatch: pytest.MonkeyPatch) -> None:
    issued: list[Operation] = []
    plain = Interpreter.issue

    def issue(self: Interpreter, bound: Sequence[tuple[Issued, object]]) -> None:
        issued.extend(one.operation for one, _ in bound)
        plain(self, bound)

    monkeypatch.setattr(Interpreter, "issue", issue)
    for schedule in [*SCHEDULES, everywhere()]:
        issued.clear()
        with runtime.offload(
            stack(schedule.ring.modules), slots=schedule.ring.slots, policy=schedule
        ):
            assert issued == list(lower(schedule).preload)


def test_every_operation_issued_is_in_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reaches the device beside it: here every action says that it was executed."""
    done: list[Operation] = []
    plain = Interpreter.action

    def action(self: Interpreter, operation: Operation) -> object:
        act = plain(self, operation)

        def noted() -> None:
            done.append(operation)
            act()

        return noted

    monkeypatch.setattr(Interpreter, "action", action)
    schedule = everywhere()
    model = stack(3)
    with runtime.offload(model, slots=3, policy=schedule) as offloaded:
        assert done == list(lower(schedule).preload)
        done.clear()
        assert traced(model, offloaded, 2) == done
        done.clear()
        with torch.no_grad(), offloaded.trace() as trace:
            model.layers[2](torch.zeros(1, WIDTH))
            model.layers[0].up.weight.add_(1)
            model.layers[0](torch.zeros(1, WIDTH))
        assert trace.operations == done


def by_hand(program: Program, schedule: Schedule, order: Sequence[int]) -> list[Operation]:
    """The operations of modules that run in this order, with a reload at every miss."""
    holds = dict(schedule.preload)
    found: list[Operation] = []
    for step, enter in walk_in_order(schedule, order):
        slot, module = schedule.slot_of[step], step % schedule.ring.modules
        found += lower_refills(enter) + program.before[step]
        holds.update((*enter, *schedule.before[step]))
        if holds.get(slot) != module:
            found += lower_refills([Refill(slot, module)])
        holds[slot] = module
        found += program.begin[step] + program.after[step]
        holds.update(schedule.after[step])
    return found


@pytest.mark.parametrize("order", [[2, 1, 0], [0, 0, 1, 1, 2], [1, 2, 0, 2, 0, 1, 0, 1, 2]])
def test_at_a_miss_exactly_the_reload_comes_in_between(order: list[int]) -> None:
    for schedule in named_schedules(Ring(3, 2)):
        model = stack(3)
        with (
            torch.no_grad(),
            runtime.offload(model.layers, slots=2, policy=schedule) as offloaded,
            offloaded.trace() as trace,
        ):
            for index in order:
                model.layers[index](torch.zeros(1, WIDTH))
        assert trace.operations == by_hand(lower(schedule), schedule, order)
        missed = offloaded.report().misses
        assert missed == misses(schedule, order)
        assert missed > 0 or schedule.policy in LOADS_EVERY_PASS, schedule


def test_a_module_whose_slot_was_taken_by_an_inner_one_gets_it_back_with_a_wait() -> None:
    """Module 1 runs inside module 0, both from slot 0."""
    model = stack(2)
    inner = model.layers[1]
    handle = before_run(model.layers[0].down, lambda: inner(batches(1)[0]))
    with torch.no_grad(), runtime.offload(model, slots=1, policy="chain") as offloaded:
        schedule, program = offloaded.schedule, lower(offloaded.schedule)
        with offloaded.trace() as trace:
            model.layers[0](batches(1)[0])
        handle.remove()
    reload = list(lower_refills([Refill(0, 1)]))
    # Module 1's own refill after it brings module 0 back: no second copy, but it may not have
    # landed when module 0 resumes.
    wait = program.begin[0][0]
    wanted = [*program.begin[0], *reload, *program.begin[1], *program.after[1], wait]
    assert trace.operations == [*wanted, *program.after[0]]
    assert wait == Wait(COMPUTE, landed(0), 0)
    assert schedule.after[1] == (Refill(0, 0),)


def test_without_the_schedules_help_the_outer_module_is_reloaded_and_waited_for() -> None:
    """Module 1 runs inside module 0; the schedule brings module 2 after it."""
    model = stack(3)
    inner = model.layers[1]
    handle = before_run(model.layers[0].down, lambda: inner(batches(1)[0]))
    with torch.no_grad(), runtime.offload(model, slots=1, policy="chain") as offloaded:
        program = lower(offloaded.schedule)
        with offloaded.trace() as trace:
            model.layers[0](batches(1)[0])
        handle.remove()
    assert trace.operations == [
        *program.begin[0],
        *lower_refills([Refill(0, 1)]),
        *program.begin[1],
        *program.after[1],
        *lower_refills([Refill(0, 0)]),
        program.begin[0][0],
        *program.after[0],
    ]


def test_nothing_is_traced_outside_of_the_context() -> None:
    model = stack(3)
    with runtime.offload(model, slots=2) as offloaded:
        first = traced(model, offloaded, 1)
        kept = list(first)
        outputs(model, batches(2))
        assert first == kept
        assert traced(model, offloaded, 1) == kept
        with pytest.raises(ValueError, match="planned"), offloaded.trace():
            raise ValueError("planned")
        assert offloaded._interpreter.log is None


def test_traces_within_traces() -> None:
    model = stack(3)
    with runtime.offload(model, slots=2) as offloaded, offloaded.trace() as whole:
        period = list(lower(offloaded.schedule).period())
        outputs(model, batches(1))
        assert traced(model, offloaded, 2) == period * 2
        outputs(model, batches(1))
    assert whole.operations == period * 4


def test_an_unsafe_schedule_is_executed_as_it_is() -> None:
    """The runtime corrects nothing."""
    model: Stack = stack(3)
    with offload_without_proof(
        model, slots=2, policy="modular", output_may_be_wrong=True
    ) as offloaded:
        wanted = list(lower(offloaded.schedule).period()) * 2
        assert traced(model, offloaded, 2) == wanted


def test_after_close_there_is_nothing_to_trace() -> None:
    with runtime.offload(stack(3), slots=2) as offloaded:
        outputs(stack(3), batches(1))
    with (
        pytest.raises(OffloadError, match="is closed and issues nothing; trace it while it is"),
        offloaded.trace(),
    ):
        pass
    assert offloaded.report().modules == 3
    assert offloaded.recorded_order() is None
