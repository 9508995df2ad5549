"""The audit by itself: each of its checks finds what is wrong, and says what was allowed there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from schedule import Refill, Ring, Schedule, policies
from schedule.audit import Audited, audit
from schedule.conform import Misfit
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Event,
    Issued,
    Listing,
    Operation,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.order import order, somewhere
from schedule.program import lower, lower_refill, lower_write
from schedule.table import Boundary
from schedule.trace import Trace
from schedule.tracefile import parse
from tests.schedule.traces import in_order, loaded

CHAIN = policies.chain(Ring(3, 2))
STREAMS = [Streams(), Streams(("copy", "second")), Streams((COMPUTE,))]
EACH_STREAMS = pytest.mark.parametrize("streams", STREAMS, ids=lambda s: "+".join(s.copies))
ROOM = 8


def first(trace: Trace) -> tuple[int, str, str, str]:
    """The first operation that does not fit, by its line."""
    found = audit(trace).misfits[0]
    return found.at + 2, found.property, found.why, found.allowed


def properties(trace: Trace) -> dict[str, int]:
    """The line of the first misfit of each property."""
    return {misfit.property: misfit.at + 2 for misfit in audit(trace).misfits}


# ---- what fits


@EACH_STREAMS
@pytest.mark.parametrize("name", policies.NAMED)
def test_every_named_policy_fits_on_any_streams(name: str, streams: Streams) -> None:
    policy, rings = policies.NAMED[name], 0
    for modules in range(1, ROOM):
        for slots in range(policy.least_slots, ROOM):
            schedule = policy(Ring(modules, slots))
            if name == "modular" and 1 < slots < modules and modules % slots:
                continue
            rings += 1
            for make in (in_order, loaded):
                found = audit(make(schedule, 2, streams))
                assert found.fits, str(found)
                passes = 2 * schedule.period
                assert (found.passes, found.runs) == (passes, passes * modules)
                assert (found.misses, found.abandoned, found.unentered) == (0, 0, 0)
    assert rings > 20


@EACH_STREAMS
def test_a_period_of_two_passes_fits(streams: Streams) -> None:
    rotating = Schedule(
        ring=Ring(3, 2),
        policy="rotating",
        slot_of=(0, 1) * 3,
        preload=(Refill(0, 0), Refill(1, 1)),
        enter=((), ()),
        before=((),) * 6,
        after=tuple((Refill(step % 2, (step + 2) % 3),) for step in range(6)),
        leave=((), ()),
    )
    for make in (in_order, loaded):
        found = audit(make(rotating, 3, streams))
        assert found.fits, str(found)
        assert (found.passes, found.runs) == (6, 18)
        again = parse("".join(f"{line}\n" for line in found.trace.lines()).encode())
        assert again == found.trace


def test_a_pass_that_begins_without_its_enter_is_counted() -> None:
    """Its modules may have been called without the model: what they find is right all the same.
    Of later passes it can't be told: a module without refills after it may be running still."""
    whole = loaded(policies.restart(Ring(3, 3)), 3)
    assert (audit(whole).unentered, audit(whole).copies) == (0, 9)
    issued = [one for one in whole.issued if one.boundary.half != "enter"]
    found = audit(replace(whole, holds=(0, 1, 2), issued=issued))
    assert found.fits
    assert (found.unentered, found.copies, found.runs) == (1, 0, 9)
    assert str(found).splitlines()[0].endswith(", 0 misses, 1 passes without enter")


def test_counts() -> None:
    found = audit(loaded(CHAIN, 3))
    assert str(found) == (
        "chain, 3 modules, 2 slots, on cpu: 42 operations, 6 copies, 9 runs, 3 passes in order, "
        "0 misses\nfits"
    )
    assert found.as_json() == {
        "fits": True,
        "policy": "chain",
        "modules": 3,
        "slots": 2,
        "device": "cpu",
        "operations": 42,
        "copies": 6,
        "runs": 9,
        "abandoned": 0,
        "unentered": 0,
        "passes": 3,
        "misses": 0,
        "unsafe": [],
        "misfits": [],
    }


@pytest.mark.parametrize(
    ("order", "passes"),
    [("0120", 1), ("120", 0), ("01012", 1), ("0012", 1), ("012012", 2), ("0120121", 2), ("02", 0)],
)
def test_passes_in_order_are_counted(order: str, passes: int) -> None:
    keeping = policies.chain(Ring(3, 3))
    trace = loaded(keeping, 1)
    begin = lower(keeping).parts()["run"]
    trace.issued = [one for module in order for one in begin[int(module)]]
    found = audit(trace)
    assert (found.fits, found.passes, found.runs) == (True, passes, len(order))


def test_the_first_of_each_property_comes_in_order() -> None:
    found: Audited = audit(in_order(policies.modular(Ring(5, 2)), 3))
    lines = [misfit.at for misfit in found.misfits]
    assert lines == sorted(lines)
    assert len({misfit.property for misfit in found.misfits}) == len(lines) > 1


# ---- the program


def test_another_copy_than_the_programs() -> None:
    trace = loaded(CHAIN, 1)
    assert trace.issued[4].operation == Copy(COPY, 0, 2)
    trace.issued[4] = trace.issued[4]._replace(operation=Copy(COPY, 1, 2))
    audited = audit(trace)
    assert first(trace) == (
        6,
        "program",
        "the operations after module 0 are others, or are cut short",
        "[copy: copy module 2 into slot 0] (after module 0)",
    )
    assert str(audited).splitlines()[1] == (
        "does not fit: line 6: [copy: copy module 2 into slot 1] (after module 0)"
    )
    assert audited.as_json()["misfits"][0]["operation"]["slot"] == 1


def test_an_end_within_a_boundary() -> None:
    trace = loaded(CHAIN, 1)
    del trace.issued[5:]
    assert first(trace) == (
        7,
        "program",
        "the operations after module 0 are others, or are cut short",
        "[copy: record landed[0]] (after module 0)",
    )
    audited = audit(trace)
    assert str(audited).splitlines()[1] == "does not fit: line 7: the end of the trace"
    assert audited.as_json()["misfits"][0]["operation"] is None


BUSY = Schedule(
    ring=Ring(2, 2),
    policy="busy",
    slot_of=(0, 1),
    preload=(Refill(0, 0), Refill(1, 1)),
    enter=((Refill(0, 0),),),
    before=((), (Refill(1, 1),)),
    after=((Refill(0, 0),), ()),
    leave=((Refill(1, 1),),),
)
PARTS = lower(BUSY).parts()


def parts(*names: str) -> Trace:
    """A trace of these boundaries: half and step."""
    trace = Trace("cpu", BUSY, (0, 1))
    for name in names:
        half, step = name.split()
        listings = {one[0].boundary: one for one in PARTS[half] if one}
        trace.issued += listings[Boundary(half, int(step))]
    return trace


RIGHT = [
    "enter 0, run 0, after 0, before 1, run 1, leave 1",
    "run 0, after 0, run 0, run 0, after 0, resume 0, after 0",  # twice; itself inside itself
    "run 0, before 1, run 1, after 0",
    "run 0, run 0, after 0",  # abandoned
    "before 1, before 1, run 1, run 0, after 0",  # refused after its refill
    "before 1, reload 1, run 1",
    "reload 0, run 0",
    "run 0, before 1, run 1, reload 0, resume 0, after 0",
    "run 0, before 1, run 1, resume 0, resume 0, after 0",  # one inside one inside it, unseen
    "before 1, run 1, before 1, run 1, write 1, reload 1, resume 1, write 1",
    "run 0, write 0, after 0",
    "enter 0, enter 0, leave 1, leave 1, enter 0",  # another pass within, or abandoned
    "preload 0, run 0",
]


@pytest.mark.parametrize("names", RIGHT)
def test_what_may_follow_what(names: str) -> None:
    found = audit(parts(*names.split(", ")))
    assert not found.misfits, str(found)


WRONG = {
    "run 1": "the refills before it are missing",
    "before 1, run 0, run 1": "the refills before it are missing",
    "before 1, enter 0, run 1": "the refills before it are missing",
    "before 1, reload 0, run 0, run 1": "the refills before it are missing",
    "after 0": "module 0 is not running",
    "run 0, after 0, after 0": "module 0 is not running",
    "run 0, run 0, after 0, after 0, after 0": "module 0 is not running",
    "reload 0": "module 0 was reloaded, but then does not run",
    "reload 0, reload 0, run 0": "module 0 was reloaded, but then does not run",
    "reload 1, run 0": "module 1 was reloaded, but then does not run",
    "run 0, reload 0, write 0": "module 0 was reloaded, but then does not run",
    "resume 0": "nothing ran inside the run of module 0",
    "reload 0, resume 0": "nothing ran inside the run of module 0",
    "run 0, resume 0": "nothing ran inside the run of module 0",
    "run 0, run 0, after 0, resume 0, resume 0": "nothing ran inside the run of module 0",
    "run 0, run 0, after 0, after 0": "module 0 is not running",
    "before 1, run 1, resume 0": "module 0 is not running",
    "write 0": "module 0 is not running",
    "run 0, write 1": "module 1 is not running",
    "run 0, after 0, write 0": "module 0 is not running",
    "run 0, preload 0": "the preload comes before all else",
}


@pytest.mark.parametrize("names", WRONG)
def test_what_may_not_follow_what(names: str) -> None:
    misfits = audit(parts(*names.split(", "))).misfits
    assert [misfit.why for misfit in misfits if misfit.property == "program"] == [WRONG[names]]
    assert all(misfit.allowed for misfit in misfits)


def test_a_boundary_without_operations() -> None:
    trace = parts("run 0")
    trace.issued.append(Issued(Record(COMPUTE, RAN), Boundary("after", 1)))
    assert first(trace)[:3] == (4, "program", "the program has no operations after module 1")


def test_what_lost_its_slot_and_did_not_get_it_back_does_not_run() -> None:
    """Module 1 inside module 0, both from slot 0."""
    chain = policies.chain(Ring(3, 1))
    found = lower(chain).parts()
    trace = Trace("cpu", chain, (0,))
    inner = [*found["run"][0], *found["reload"][1], *found["run"][1], *found["after"][1]]
    resumed = [*found["reload"][0], *found["resume"][0]]
    trace.issued = [*inner, *resumed, *found["after"][0]]
    assert audit(trace).fits
    trace.issued = [*inner, *found["after"][0]]
    assert first(trace) == (
        2 + len(inner),
        "program",
        "module 0 is not running",
        "a boundary of a module that runs",
    )
    trace.issued = [*inner, *found["reload"][0], *found["after"][0]]
    assert first(trace)[2:] == (
        "module 0 was reloaded, but then does not run",
        "[compute: wait for landed[0], the copy of module 0]",
    )


def test_after_a_boundary_after_what_ran_inside_the_outer_one_lost_its_slot() -> None:
    """Also if the outer one has no boundary after it, and if what ran inside was a whole pass."""
    one_slot = Schedule(
        ring=Ring(2, 1),
        policy="one slot",
        slot_of=(0, 0),
        preload=(Refill(0, 0),),
        enter=((),),
        before=((Refill(0, 0),), (Refill(0, 1),)),
        after=((), (Refill(0, 1),)),
        leave=((Refill(0, 0),),),
    )
    found = lower(one_slot).parts()
    trace = Trace("cpu", one_slot, (1,), (0, 1))
    write, after, leave = found["write"][0], found["after"][1], found["leave"][0]
    trace.issued = [*found["write"][1], *after]
    assert not audit(trace).misfits
    trace.issued = [*write, *after]  # what would be kept is module 1's
    assert properties(trace) == {"meaning": 4, "identity": 7}
    assert audit(trace).misfits[1].why == "slot 0 holds module 1"
    trace.issued = [*after, *write]
    assert first(trace)[:3] == (2 + len(after), "program", "module 0 is not running")
    trace.issued = [*leave, *after]  # module 0 may be inside of 1, or 1 of 0: it can't be told
    assert not audit(trace).misfits
    trace.issued = [*leave, *found["reload"][1], *found["resume"][1], *after]
    assert not audit(trace).misfits


def test_what_ran_when_the_trace_began_may_end_in_it() -> None:
    trace = parts("after 0")
    trace.running = (0,)
    assert not audit(trace).misfits
    assert audit(trace).abandoned == 0
    trace = parts("write 1", "reload 1", "resume 1")
    trace.running = (1,)
    assert not audit(trace).misfits


# ---- what the slots hold


def test_a_run_without_its_reload() -> None:
    trace = loaded(CHAIN, 1)
    trace.issued = list(lower(CHAIN).parts()["run"][2])
    assert properties(trace) == {"meaning": 2, "identity": 3}
    assert first(trace)[1:] == (
        "meaning",
        "what it waits for is not the latest copy into the slot, or not that module's",
        "a wait for the latest copy into the slot, recorded after it",
    )
    assert audit(trace).misfits[1] == Misfit(
        1, "identity", "slot 0 holds module 0", "a copy of module 2 into slot 0"
    )


def test_what_gets_its_slot_back_must_find_itself_there() -> None:
    """The copy of the reload is another's: the machine and the program both say so."""
    trace = parts("run 0", "reload 0", "resume 0")
    at = next(n for n, one in enumerate(trace.issued) if isinstance(one.operation, Copy))
    trace.issued[at] = trace.issued[at]._replace(operation=Copy(COPY, 0, 1))
    last = len(trace.issued) + 1
    assert properties(trace) == {"program": at + 2, "meaning": last, "identity": last}


def test_what_gets_its_slot_back_reads_on() -> None:
    """Its wait is for another slot's copy, so its own may not have landed."""
    trace = parts("run 0", "reload 0", "resume 0")
    trace.issued[-1] = trace.issued[-1]._replace(operation=Wait(COMPUTE, landed(1)))
    last = len(trace.issued) + 1
    assert properties(trace) == {"program": last, "RAW": last}


def test_an_overwrite_counts_as_one_in_order_only() -> None:
    trace = in_order(policies.modular(Ring(3, 2)), 1)
    assert properties(trace)["ownership"] == 20
    out_of_order = loaded(policies.modular(Ring(3, 2)), 1)
    out_of_order.issued[:2] = lower(CHAIN).parts()["run"][1]
    assert "ownership" not in properties(out_of_order)
    elsewhere = loaded(policies.modular(Ring(3, 2)), 1)
    elsewhere.holds = (0, 0)
    assert "ownership" not in properties(elsewhere)


def test_an_overwrite_on_leave_or_after_a_whole_period_counts_too() -> None:
    leaving = replace(BUSY, after=((), ()), leave=((Refill(0, 1),),))
    last = audit(in_order(leaving, 1))
    assert [misfit.property for misfit in last.misfits] == ["ownership"]
    assert last.trace.issued[last.misfits[0].at].boundary == ("leave", 1)
    for holds, counts in (((0, 1), True), ((1, 1), True), ((1, 0), False)):
        trace = loaded(leaving, 1)
        trace.holds = holds  # of the preload, of a period's end, of neither
        assert ("ownership" in properties(trace)) == counts


def test_an_unsafe_schedule_is_said_to_be_one() -> None:
    trace = loaded(policies.modular(Ring(3, 2)), 1)
    trace.issued = trace.issued[:2]
    found = audit(trace)
    assert (found.misfits, found.fits) == ((), False)
    lines = str(found).splitlines()
    assert lines[1].startswith("unsafe schedule: ownership: pass 0, after module 1: refill")
    assert lines[-1] == "fits the program of an unsafe schedule"
    assert [text.partition(":")[0] for text in found.as_json()["unsafe"]] == [
        "ownership",
        "progress",
        "identity",
    ]


# ---- what is ordered


def without(trace: Trace, wrong: Callable[[Operation], bool]) -> Trace:
    return replace(trace, issued=[one for one in trace.issued if not wrong(one.operation)])


def test_without_a_fence_the_ordering_names_the_access() -> None:
    """The program is violated too, of course; this is what else each fence is there for."""
    trace = loaded(CHAIN, 2)
    waits = without(trace, lambda one: isinstance(one, Wait) and one.stream == COMPUTE)
    assert properties(waits)["RAW"] == 2
    (raw,) = [misfit for misfit in audit(waits).misfits if misfit.property == "RAW"]
    assert (
        raw.why == "it reads the slot while it may still be written by what came before the trace"
    )
    assert raw.allowed == "a wait for that before it"
    fork = without(trace, lambda one: isinstance(one, Wait) and one.stream == COPY)
    (war,) = [misfit for misfit in audit(fork).misfits if misfit.property == "WAR"]
    assert war.at + 2 == 5
    assert war.why == (
        "it overwrites the slot while it may still be read by "
        "[compute: run module 0 from slot 0] (line 3)"
    )
    assert war.allowed == "let copy wait for ran before the copy"
    records = without(trace, lambda one: one == Record(COPY, landed(0)))
    assert set(properties(records)) == {"program", "meaning", "RAW"}


def test_on_two_copy_streams_a_copy_waits_for_the_last_one() -> None:
    local = policies.slot_local(Ring(2, 3))
    trace = loaded(local, 2, STREAMS[1])
    assert audit(trace).fits
    several = without(
        trace,
        lambda one: isinstance(one, Wait) and one.event.name == "landed" and one.module is None,
    )
    assert properties(several)["WAW"] == 6


def test_a_write_waits_for_the_copies_of_its_block() -> None:
    trace = parts("run 0", "write 0")
    assert audit(trace).fits
    trace = without(trace, lambda one: isinstance(one, Wait) and one.stream == HOST)
    assert properties(trace) == {"program": 5, "block": 6, "RAW": 6}
    assert [misfit.why for misfit in audit(trace).misfits[1:]] == [
        "it reads the slot while it may still be written by what came before the trace",
        "it changes the block while it may still be read by what came before the trace",
    ]


def listing(*operations: Operation) -> Listing:
    return tuple(Issued(operation, Boundary("run", 0)) for operation in operations)


def faults(operations: Iterable[Operation], streams: Streams) -> list[str]:
    state = somewhere((0, 1), 3, streams)
    return [fault.property for fault in order(listing(*operations), streams, state).faults]


@EACH_STREAMS
def test_in_the_weakest_state_only_the_programs_own_fences_order(streams: Streams) -> None:
    """From there on a boundary of the program is ordered, and without any of its waits or
    records it is not."""
    run = lower(CHAIN, streams).begin[0]
    refill = lower_refill(Refill(1, 2), streams)
    write = lower_write(Refill(1, 1), streams)
    for operations in (run, refill, write, (*run, *write, *refill)):
        assert faults(operations, streams) == []
    if streams.shared:
        assert faults(write[2:], streams) == ["RAW", "RAW", "block"]
    else:
        assert faults([write[0], *write[2:]], streams) == ["block"]
        assert faults([*write[:3], write[5]], streams) == ["RAW"]  # the run has not ended
        several = len(streams.copies) > 1  # one that is drained has landed all copies
        assert faults([*write[:2], *write[3:]], streams) == ["RAW"][:several]
        assert faults(write[3:], streams) == ["RAW", "block"]
        assert faults(write[5:], streams) == ["RAW", "RAW", "block"]
    assert (
        faults(lower_write(Refill(1, 2), streams), streams)
        == ["meaning", "identity"][streams.shared :]
    )
    if streams.shared:
        assert (len(run), len(refill)) == (1, 1)
        return
    assert faults(run[1:], streams) == ["RAW"]
    copy = next(one for one in refill if isinstance(one, Copy))
    many = len(streams.copies) > 1
    assert faults([copy], streams) == ["WAR", "WAW"][: 1 + many]
    assert faults(refill[1:], streams) == ["WAR"]  # the latest record of ran may be long ago
    assert faults([*refill[:1], *refill[2:]], streams) == ["WAR"]
    if many:
        assert faults([one for one in refill if one != Wait("copy", landed(1))], streams) == ["WAW"]
    # What covers one slot's copy covers no other's.
    other = (Wait(COMPUTE, landed(1), 1), Run(COMPUTE, 0, 0))
    assert faults(other, streams) == ["RAW"]
    assert faults([Wait(COMPUTE, Event("drained", 0)), Run(COMPUTE, 0, 0)], streams) == ["RAW"]
    assert faults([Wait(COMPUTE, landed(0), 1), Run(COMPUTE, 0, 0)], streams) == ["meaning"]
    assert faults([Write(2)], streams) == ["block"]
