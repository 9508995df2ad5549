"""Copies and runs on the axis of time, fences, and what the slots hold meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from schedule import Refill, Ring, Schedule, check, policies
from schedule.drawing import Drawing, Mark, caption, draw
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Event,
    Issued,
    Operation,
    Record,
    Run,
    Streams,
    Wait,
    landed,
)
from schedule.order import order
from schedule.placed import (
    ARRIVING,
    COPY_TIME,
    EMPTY_SLOT,
    READ,
    RUN_TIME,
    WHOLE,
    Fence,
    Placed,
    contents,
    place,
)
from schedule.policy import NAMED
from schedule.program import lower
from schedule.properties import IDENTITY, OWNERSHIP
from schedule.ring import EMPTY
from schedule.table import RUN, Boundary

SIZES = [(1, 1), (3, 1), (3, 2), (5, 2), (5, 3), (7, 3), (4, 4), (3, 5), (10, 4)]


def drawings(passes: int = 2) -> Iterator[Drawing]:
    for modules, slots in SIZES:
        for policy in NAMED.values():
            if slots >= policy.least_slots:
                yield draw(check(policy(Ring(modules, slots))), passes)


def listed(*operations: Operation) -> tuple[Issued, ...]:
    return tuple(Issued(operation, Boundary(RUN, 0)) for operation in operations)


def times(placed: Placed) -> list[tuple[int, int]]:
    return [(box.start, box.end) for box in placed.boxes]


def test_modular_at_3_2_is_placed_as_by_hand() -> None:
    drawing = draw(check(policies.modular(Ring(3, 2))), 1)
    found = [
        (type(b.operation).__name__, b.operation.module, b.operation.slot, b.start, b.end)
        for b in drawing.placed.boxes
    ]
    assert (RUN_TIME, COPY_TIME) == (2, 1)
    assert found == [
        ("Copy", 0, 0, 0, 1),
        ("Copy", 1, 1, 1, 2),
        ("Run", 0, 0, 1, 3),
        ("Copy", 2, 0, 3, 4),
        ("Run", 1, 1, 3, 5),
        ("Copy", 0, 0, 5, 6),
        ("Run", 2, 0, 6, 8),
        ("Copy", 1, 1, 8, 9),
    ]
    assert drawing.placed.fences == ((0, 2), (2, 3), (1, 4), (4, 5), (5, 6), (6, 7))
    assert (drawing.placed.end, drawing.passes) == (9, ((1, 8),))
    assert [(c.start, c.end, c.phase, c.module) for c in drawing.contents if c.slot == 0] == [
        (0, 1, ARRIVING, 0),
        (1, 3, READ, 0),
        (3, 4, ARRIVING, 2),
        (4, 5, WHOLE, 2),
        (5, 6, ARRIVING, 0),
        (6, 8, READ, 0),
        (8, 9, WHOLE, 0),
    ]


def test_boxes_are_the_moments_of_the_walk() -> None:
    for drawing in drawings(3):
        found = [(b.operation.slot, b.operation.module) for b in drawing.placed.boxes]
        assert found == [(m.slot, m.module) for m in drawing.moments]
        kinds = [isinstance(b.operation, Run) for b in drawing.placed.boxes]
        assert kinds == [m.half == RUN for m in drawing.moments]


def test_nothing_overlaps_on_a_stream_and_each_box_starts_as_early_as_it_can() -> None:
    for drawing in drawings():
        boxes, fences = drawing.placed.boxes, drawing.placed.fences
        ends: dict[int, list[int]] = {number: [0] for number in range(len(boxes))}
        for fence in fences:
            ends[fence.later].append(boxes[fence.earlier].end)
        last: dict[str, int] = {}
        for number, box in enumerate(boxes):
            stream = box.operation.stream
            assert box.start == max(last.get(stream, 0), *ends[number])
            cost = RUN_TIME if isinstance(box.operation, Run) else COPY_TIME
            assert box.end == box.start + cost
            last[stream] = box.end


def test_fences_go_between_streams_and_each_is_needed() -> None:
    """Together with the streams' own order they say all that the program's clocks say, and no
    fence says what the others and the streams say already."""
    for drawing in drawings():
        boxes = drawing.placed.boxes
        for fence in drawing.placed.fences:
            assert fence.earlier < fence.later
            assert boxes[fence.earlier].operation.stream != boxes[fence.later].operation.stream
        assert needless(drawing.placed) == []


def needless(placed: Placed) -> list[Fence]:
    """The fences that say what streams and other fences say already."""
    return [
        fence
        for fence in placed.fences
        if fence.earlier in before(placed, [f for f in placed.fences if f != fence], fence.later)
    ]


def before(placed: Placed, fences: Sequence[Fence], number: int) -> set[int]:
    """The boxes that are done before this one, by streams and fences."""
    done: set[int] = set()
    todo = [number]
    while todo:
        at = todo.pop()
        stream = placed.boxes[at].operation.stream
        own = [n for n in range(at) if placed.boxes[n].operation.stream == stream]
        found = own[-1:] + [f.earlier for f in fences if f.later == at]
        todo += [n for n in found if n not in done]
        done.update(found)
    return done


def test_every_run_waits_for_its_slots_copy_and_every_copy_for_all_runs() -> None:
    for drawing in drawings():
        placed = drawing.placed
        for number, box in enumerate(placed.boxes):
            earlier = before(placed, placed.fences, number)
            if isinstance(box.operation, Run):
                mine = [n for n in range(number) if is_copy_into(placed, n, box.operation.slot)]
                assert mine[-1] in earlier
            else:
                runs = [n for n in range(number) if isinstance(placed.boxes[n].operation, Run)]
                assert set(runs) <= earlier


def is_copy_into(placed: Placed, number: int, slot: int) -> bool:
    operation = placed.boxes[number].operation
    return isinstance(operation, Copy) and operation.slot == slot


def test_contents_have_no_gaps_and_agree_with_a_walk() -> None:
    for drawing in drawings():
        slots = drawing.findings.schedule.ring.slots
        for slot in range(slots):
            own = [c for c in drawing.contents if c.slot == slot]
            assert (own[0].start, own[-1].end) == (0, drawing.placed.end)
            assert all(a.end == b.start for a, b in pairwise(own))
            assert all(c.start < c.end for c in own)
        assert [c.slot for c in drawing.contents] == sorted(c.slot for c in drawing.contents)
        holds = dict.fromkeys(range(slots), EMPTY)
        at = {(c.slot, c.start): c for c in drawing.contents}
        for number, (box, moment) in enumerate(
            zip(drawing.placed.boxes, drawing.moments, strict=True)
        ):
            found = at[moment.slot, box.start]
            if moment.half == RUN:
                wanted = (READ, holds[moment.slot], number, box.end)
            else:
                holds[moment.slot] = moment.module
                wanted = (ARRIVING, moment.module, number, box.end)
            assert (found.phase, found.module, found.box, found.end) == wanted
        last = {c.slot: c.module for c in drawing.contents}
        assert last == holds
        for content in drawing.contents:
            if content.phase != READ:
                assert (content.phase == EMPTY_SLOT) == (content.module == EMPTY)


def test_a_wait_takes_the_latest_record_at_the_time_of_the_call() -> None:
    event = Event("drained", 0)
    copies = [Copy(COPY, 0, 0), Record(COPY, event), Copy(COPY, 1, 1)]
    early = place(listed(*copies, Wait(COMPUTE, event), Record(COPY, event), Run(COMPUTE, 0, 0)))
    assert times(early) == [(0, 1), (1, 2), (1, 3)]
    assert early.fences == ((0, 2),)
    late = place(listed(*copies, Record(COPY, event), Wait(COMPUTE, event), Run(COMPUTE, 0, 0)))
    assert times(late) == [(0, 1), (1, 2), (2, 4)]
    assert late.fences == ((1, 2),)


def test_a_wait_for_what_was_never_recorded_waits_for_nothing() -> None:
    placed = place(listed(Copy(COPY, 0, 0), Wait(COMPUTE, landed(0)), Run(COMPUTE, 0, 0)))
    assert times(placed) == [(0, 1), (0, 2)]
    assert placed.fences == ()


def test_a_copy_and_a_run_without_a_fence_overlap_and_the_content_says_arriving() -> None:
    placed = place(listed(Run(COMPUTE, 0, 0), Copy(COPY, 0, 1)))
    assert times(placed) == [(0, 2), (0, 1)]
    found = [(c.start, c.end, c.phase, c.module) for c in contents(placed, 1)]
    assert found == [(0, 1, ARRIVING, 1), (1, 2, READ, 1)]


def test_a_second_wait_for_the_same_is_no_fence() -> None:
    placed = place(
        listed(
            Run(COMPUTE, 0, 0),
            Record(COMPUTE, RAN),
            Wait(COPY, RAN),
            Copy(COPY, 0, 1),
            Record(COMPUTE, RAN),
            Wait(COPY, RAN),
            Copy(COPY, 1, 2),
        )
    )
    assert placed.fences == ((0, 1),)


def test_the_host_issues_nothing_before_what_it_waited_for() -> None:
    placed = place(
        listed(Copy(COPY, 0, 0), Record(COPY, landed(0)), Wait(HOST, landed(0)), Run(COMPUTE, 0, 0))
    )
    assert times(placed) == [(0, 1), (1, 3)]


@pytest.mark.parametrize("streams", [Streams(("a", "b")), Streams((COMPUTE,))], ids=str)
def test_other_streams_are_placed_too(streams: Streams) -> None:
    listing = lower(policies.chain(Ring(5, 2)), streams).listing(2)
    placed = place(listing, streams)
    assert {box.operation.stream for box in placed.boxes} == set(streams.names)
    if streams.shared:
        assert placed.fences == ()
        assert all(a.end == b.start for a, b in pairwise(placed.boxes))
    else:
        pairs = {tuple(placed.boxes[n].operation.stream for n in fence) for fence in placed.fences}
        assert pairs == {(COMPUTE, "a"), ("a", COMPUTE), (COMPUTE, "b"), ("b", COMPUTE)}
        assert needless(placed) == []


def test_a_replayed_graph_is_placed_as_often_as_it_is_replayed() -> None:
    listing = lower_captured(policies.chain(Ring(3, 2))).listing(2)
    placed = place(listing)
    assert order(listing).safe
    runs = [box for box in placed.boxes if isinstance(box.operation, Run)]
    assert [box.operation.module for box in runs] == [0, 1, 2, 0, 1, 2]
    assert [box.boundary for box in runs] == [Boundary("replay", 0)] * 3 + [
        Boundary("replay", 1)
    ] * 3
    assert all(a.end <= b.start for a, b in pairwise(runs))


# ---- marks


def test_marks_begin_with_what_the_verifier_found() -> None:
    """The first overwrite and the first wrong read are the verifier's; no mark, no violation."""
    marked = 0
    for drawing in drawings():
        findings = drawing.findings
        assert findings.safe == (not drawing.marks)
        for name in (OWNERSHIP, IDENTITY):
            found = [v for v in findings.violations if v.property == name]
            first = next((m for m in drawing.marks if m.property == name), None)
            assert (first is None) == (not found)
            if first is not None:
                (violation,) = found
                at = violation.replaced if name == OWNERSHIP else violation.run
                assert (first.moment, first.slot, first.needs) == (
                    at,
                    violation.slot,
                    violation.needs,
                )
                marked += 1
    assert marked == 2 * 5  # modular at (3,2), (5,2), (5,3), (7,3), (10,4)


def test_every_pass_has_its_marks() -> None:
    drawing = draw(check(policies.modular(Ring(3, 2))), 3)
    assert [(m.property, m.moment) for m in drawing.marks] == [
        (name, number * 6 + at)
        for number in range(3)
        for name, at in ((OWNERSHIP, 5), (IDENTITY, 6))
    ]
    assert {(m.slot, m.needs, m.has) for m in drawing.marks} == {(0, 2, 0)}


def test_captions() -> None:
    assert caption(Mark(OWNERSHIP, 0, 1, 2, 3)) == (
        "module 3 is copied over module 2 in slot 1, and module 2 has yet to run"
    )
    assert caption(Mark(IDENTITY, 0, 1, 2, 3)) == (
        "module 2 runs, and reads module 3's weights in slot 1"
    )
    assert caption(Mark(IDENTITY, 0, 1, 2, EMPTY)) == (
        "module 2 runs, and reads nothing that was copied in slot 1"
    )


def unpreloaded() -> Schedule:
    """Module 1's slot gets its first copy only after its run in the first pass."""
    return Schedule(
        ring=Ring(2, 2),
        policy="unpreloaded",
        slot_of=(0, 1),
        preload=(Refill(0, 0),),
        enter=((),),
        before=((), ()),
        after=((), (Refill(1, 1),)),
        leave=((),),
    )


def test_a_slot_that_nothing_was_copied_into_is_marked_at_its_run() -> None:
    drawing = draw(check(unpreloaded()), 1)
    assert drawing.marks == (Mark(IDENTITY, 2, 1, 1, EMPTY),)
    found = [(c.phase, c.start, c.end) for c in drawing.contents if c.slot == 1]
    assert found[0] == (EMPTY_SLOT, 0, 3)
    assert found[1] == (READ, 3, 5)
    assert found[2] == (ARRIVING, 5, 6)


def test_more_passes_are_drawn_than_asked_for_until_the_violation_shows() -> None:
    """Module 0 is replaced for good at the end of the first pass; the second one reads."""
    schedule = Schedule(
        ring=Ring(2, 2),
        policy="late",
        slot_of=(0, 1),
        preload=(Refill(0, 0), Refill(1, 1)),
        enter=((),),
        before=((), ()),
        after=((), (Refill(0, 1),)),
        leave=((),),
    )
    drawing = draw(check(schedule), 1)
    assert len(drawing.passes) == 2
    assert [(m.property, m.needs) for m in drawing.marks] == [
        (OWNERSHIP, 0),
        (IDENTITY, 0),
    ]
