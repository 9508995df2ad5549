"""What the tests of the orderings share: listings by hand, at random, and three engines at once."""

from __future__ import annotations

from random import Random

from proofs.engines import normal, settled
from proofs.timing import overlaps
from schedule.explore import Explored, explore
from schedule.faults import explain
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    ONE_COPY_STREAM,
    RAN,
    Capture,
    Copy,
    EndCapture,
    Event,
    Issued,
    Listing,
    Operation,
    Operations,
    Record,
    Replay,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.order import Ordering, order
from schedule.program import lower_write
from schedule.table import Boundary, Refill

GRAPH = "g"
SECOND = "copy 1"
TWO = Streams((COPY, SECOND))
DRAINED = Event("drained", 0)
SHOWN = tuple[str, int, int | None]
"""A fault: its property, and the positions in the listing of the later and the earlier one."""


def listing(*operations: Operation) -> Listing:
    """The operations, the n-th issued at "step n"."""
    return tuple(Issued(each, Boundary("step", n)) for n, each in enumerate(operations))


def own(event: Event) -> Event:
    """The graph's own event of that name."""
    return Event(event.name, event.number, GRAPH)


def graph(*operations: Operation) -> Operations:
    """The operations between the capture's begin and end, on the compute stream."""
    return Capture(COMPUTE, GRAPH), *operations, EndCapture(COMPUTE, GRAPH)


REPLAY = Replay(COMPUTE, GRAPH)


def refill(slot: int, module: int, stream: str = COPY) -> Operations:
    """A copy with its fences; one copy stream needs no more."""
    fork = Record(COMPUTE, RAN), Wait(stream, RAN)
    return *fork, Copy(stream, slot, module), Record(stream, landed(slot))


def run(slot: int, module: int) -> Operations:
    return Wait(COMPUTE, landed(slot), module), Run(COMPUTE, slot, module)


def host_write(module: int, streams: Streams = ONE_COPY_STREAM) -> Operations:
    """The host writes into a block what is in no slot, with the fence that it needs."""
    drained, wait, *_ = lower_write(Refill(0, module), streams)
    return drained, wait, Write(module)


def own_refill(slot: int, module: int, stream: str = COPY) -> Operations:
    """The same in a graph."""
    fork = Record(COMPUTE, own(RAN)), Wait(stream, own(RAN))
    return *fork, Copy(stream, slot, module), Record(stream, own(landed(slot)))


def own_run(slot: int, module: int) -> Operations:
    return Wait(COMPUTE, own(landed(slot)), module), Run(COMPUTE, slot, module)


def differences(clocks: Ordering, explored: Explored) -> list[str]:
    """Which engines do not find what the clocks find."""
    asked = (clocks.faults, explored.faults, overlaps(explored.tasks))
    ours, theirs, real = settled(*(normal(faults, explored.tasks) for faults in asked))
    equal = theirs == ours if explored.complete else theirs <= ours
    return ["interleavings"] * (not equal) + ["solver"] * (real != ours)


def three(program: Listing, streams: Streams = ONE_COPY_STREAM) -> Ordering:
    """What the clocks found; the interleavings, all of them, and the solver find the same."""
    clocks, explored = order(program, streams), explore(program, streams)
    assert explored.complete
    assert differences(clocks, explored) == []
    return clocks


def shown(ordering: Ordering) -> list[SHOWN]:
    """The faults by positions in the listing."""
    tasks = ordering.tasks
    return [
        (
            fault.property,
            tasks[fault.later].at,
            None if fault.earlier is None else tasks[fault.earlier].at,
        )
        for fault in ordering.faults
    ]


def faults(*operations: Operation, streams: Streams = ONE_COPY_STREAM) -> list[SHOWN]:
    """The faults that every engine finds in these operations."""
    return shown(three(listing(*operations), streams))


def sentences(
    *operations: Operation, streams: Streams = ONE_COPY_STREAM, modules: int = 3
) -> list[str]:
    """The same, in words."""
    found = three(listing(*operations), streams)
    return [explain(found, fault, modules) for fault in found.faults]


# ---- random programs: pieces of one or more operations, right ones and wrong ones


def pieces(streams: Streams) -> list[Operations]:
    """All that can be issued eagerly, for two slots and three modules."""
    found: list[Operations] = []
    events = (RAN, landed(0), landed(1), DRAINED)
    for slot in (0, 1):
        for module in range(3):
            found += [run(slot, module), (Run(COMPUTE, slot, module),)]
            found += [(*refill(slot, module, streams.of(module)), *run(slot, module))] * 2
            for stream in streams.copies:
                copy = Copy(stream, slot, module)
                found += [refill(slot, module, stream), refill(slot, module, stream), (copy,)]
    for stream in streams.copies:
        found += [(Copy(stream, 0, 0, True),), (Record(stream, DRAINED), Wait(HOST, DRAINED))]
    for stream in streams.names:
        found += [(Record(stream, event),) for event in events]
        found += [(Wait(stream, event),) for event in events]
    return [
        *found,
        *((Write(module),) for module in range(3)),
        (Write(0, 0),),
        (Write(2, 1),),
        (Wait(HOST, landed(0)),),
    ]


def graph_pieces(streams: Streams) -> list[Operations]:
    """All that can be captured."""
    last = streams.copies[-1]
    join = Record(last, own(DRAINED)), Wait(COMPUTE, own(DRAINED))
    found = [own_refill(slot, module, last) for slot in (0, 1) for module in (0, 1)]
    found = [(*each, *end) for each in found for end in ((), join[1:], join, join)]
    found += [own_run(slot, module) for slot in (0, 1) for module in (0, 1)]
    found += [(Run(COMPUTE, 0, 0),), (Record(COMPUTE, own(RAN)), Wait(last, own(RAN))), join, join]
    return [*found, (Wait(COMPUTE, RAN),), (Copy(last, 0, 0, True),), (Write(0),)]


def assemble(
    before: list[Operations],
    captured: list[Operations] | None,
    after: list[Operations],
    streams: Streams,
) -> Listing:
    """What is eager, then the graph if there is one, replayed where something comes after it."""
    operations = [one for piece in before for one in piece]
    if captured is not None:
        last = streams.copies[-1]
        join = Record(last, DRAINED), Wait(COMPUTE, DRAINED)
        operations += [*join, *graph(*(one for piece in captured for one in piece)), REPLAY]
    return listing(*operations, *(one for piece in after for one in piece))


def at_random(random: Random, streams: Streams) -> Listing:
    """A program as Hypothesis draws them, from a seed."""
    eager, own_pieces = pieces(streams), graph_pieces(streams)
    captured = random.choices(own_pieces, k=random.randint(0, 3)) if random.random() < 0.3 else None
    most = 5 if captured is None else 2
    before = random.choices(eager, k=random.randint(0, most))
    after = random.choices(eager, k=random.randint(0, 2))
    return assemble(before, captured, after, streams)
