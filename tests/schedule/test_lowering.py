"""The lowering of schedules to operations on streams: the exact list, and every fence in place."""

from __future__ import annotations

import dataclasses

import pytest

from schedule import Refill, Ring, Schedule, policies
from schedule.operations import (
    COMPUTE,
    COPY,
    RAN,
    Copy,
    Event,
    Operations,
    Record,
    Run,
    Wait,
    landed,
)
from schedule.program import Program, lower, lower_refills


def boundaries(program: Program) -> list[Operations]:
    """Each half of a boundary, and each run with its waits, by itself."""
    parts = (program.enter, program.before, program.begin, program.after, program.leave)
    return [program.preload, *(operations for part in parts for operations in part)]


def copy_of(slot: int, module: int) -> list[object]:
    """One refill: wait for the readers, copy, and mark the bytes as landed."""
    return [
        Record("compute", Event("ran")),
        Wait("copy", Event("ran")),
        Copy("copy", slot, module),
        Record("copy", Event("landed", slot)),
    ]


def run_of(slot: int, module: int) -> list[object]:
    return [Wait("compute", Event("landed", slot), module), Run("compute", slot, module)]


def everywhere() -> Schedule:
    """N=2, K=2 over two passes with a refill at every kind of boundary, two at one of them."""
    a, b = Refill(0, 0), Refill(1, 1)
    return Schedule(
        ring=Ring(2, 2),
        policy="everywhere",
        slot_of=(0, 1, 1, 0),
        preload=(b, a),
        enter=((a,), (b,)),
        before=((), (b,), (), (a,)),
        after=((a, b), (), (Refill(1, 0),), ()),
        leave=((), (Refill(0, 1), a)),
    )


def test_chain_at_three_modules_and_two_slots() -> None:
    program = lower(policies.chain(Ring(3, 2)))
    assert list(program.preload) == copy_of(0, 0) + copy_of(1, 1)
    assert list(program.period()) == [
        *run_of(0, 0),
        *copy_of(0, 2),
        *run_of(1, 1),
        *run_of(0, 2),
        *copy_of(0, 0),
    ]
    assert str(program).splitlines() == [
        "compute: record ran",
        "copy: wait for ran",
        "copy: copy module 0 into slot 0",
        "copy: record landed[0]",
        "compute: record ran",
        "copy: wait for ran",
        "copy: copy module 1 into slot 1",
        "copy: record landed[1]",
        "compute: wait for landed[0], the copy of module 0",
        "compute: run module 0 from slot 0",
        "compute: record ran",
        "copy: wait for ran",
        "copy: copy module 2 into slot 0",
        "copy: record landed[0]",
        "compute: wait for landed[1], the copy of module 1",
        "compute: run module 1 from slot 1",
        "compute: wait for landed[0], the copy of module 2",
        "compute: run module 2 from slot 0",
        "compute: record ran",
        "copy: wait for ran",
        "copy: copy module 0 into slot 0",
        "copy: record landed[0]",
    ]


def test_every_boundary_in_host_order() -> None:
    program = lower(everywhere())
    assert list(program.preload) == copy_of(1, 1) + copy_of(0, 0)
    assert list(program.period()) == [
        *copy_of(0, 0),  # enter, pass 0
        *run_of(0, 0),
        *copy_of(0, 0),
        *copy_of(1, 1),
        *copy_of(1, 1),  # before module 1
        *run_of(1, 1),
        *copy_of(1, 1),  # enter, pass 1
        *run_of(1, 0),
        *copy_of(1, 0),
        *copy_of(0, 0),  # before module 1
        *run_of(0, 1),
        *copy_of(0, 1),  # leave
        *copy_of(0, 0),
    ]
    assert list(program.leave[1]) == copy_of(0, 1) + copy_of(0, 0)
    assert program.leave[0] == ()


def fence_faults(operations: Operations) -> list[str]:
    """Copies and runs of one boundary that lack a fence right beside them."""
    wrong = []
    for at, each in enumerate(operations):
        if isinstance(each, Copy):
            around = (*operations[max(at - 2, 0) : at], *operations[at + 1 : at + 2])
            fences = (Record(COMPUTE, RAN), Wait(COPY, RAN), Record(COPY, landed(each.slot)))
            if around != fences or each.stream != COPY:
                wrong.append(f"{at}: {each} between {around}")
        if isinstance(each, Run):
            before = operations[max(at - 1, 0) : at]
            if before != (Wait(COMPUTE, landed(each.slot), each.module),) or each.stream != COMPUTE:
                wrong.append(f"{at}: {each} after {before}")
    return wrong


@pytest.mark.parametrize("name", tuple(policies.NAMED))
def test_every_copy_and_run_has_its_fences_and_nothing_else(name: str) -> None:
    policy = policies.NAMED[name]
    for modules in range(1, 17):
        for slots in range(policy.least_slots, 17):
            schedule = policy(Ring(modules, slots))
            program = lower(schedule)
            assert not [fault for part in boundaries(program) for fault in fence_faults(part)]
            assert len(program.preload) == 4 * len(schedule.preload)
            assert len(program.period()) == 4 * schedule.copies + 2 * modules * schedule.period


def test_fences_at_every_boundary() -> None:
    schedule = everywhere()
    program = lower(schedule)
    assert not [fault for part in boundaries(program) for fault in fence_faults(part)]
    assert len(program.period()) == 4 * schedule.copies + 2 * 4
    assert schedule.copies == 9


def test_fence_faults_are_seen() -> None:
    """Each fence left out, one at a time, is a fault; so is a wait for another slot or copy."""
    whole = lower(everywhere()).after[0]
    run = lower(everywhere()).begin[0]
    assert fence_faults(whole) == fence_faults(run) == []
    for at, each in enumerate(whole):
        if not isinstance(each, Copy):
            assert fence_faults(whole[:at] + whole[at + 1 :]), each
    assert fence_faults(run[1:])
    assert fence_faults((Wait(COMPUTE, landed(1), 0), run[1]))
    assert fence_faults((Wait(COMPUTE, landed(0), 1), run[1]))
    assert fence_faults((run[0], dataclasses.replace(run[1], stream=COPY)))


def test_lowering_a_refill_outside_the_schedule() -> None:
    assert list(lower_refills([Refill(2, 5)])) == copy_of(2, 5)
    assert lower_refills([]) == ()


def test_events_are_named_by_slot() -> None:
    assert [str(RAN), str(landed(3))] == ["ran", "landed[3]"]
    assert landed(3) == Event("landed", 3) != landed(2)
