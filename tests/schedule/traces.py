"""Traces of runs in order, without a runtime."""

from __future__ import annotations

from schedule import Schedule
from schedule.operations import ONE_COPY_STREAM, Issued, Streams
from schedule.program import lower
from schedule.table import Boundary
from schedule.trace import Trace


def in_order(schedule: Schedule, periods: int, streams: Streams = ONE_COPY_STREAM) -> Trace:
    """What the runtime would issue, its preload included."""
    trace = Trace("cpu", schedule, (-1,) * schedule.ring.slots, streams=streams)
    steps = len(schedule.slot_of)
    for operation, (half, step) in lower(schedule, streams).listing(periods):
        trace.issued.append(Issued(operation, Boundary(half, step % steps)))
    return trace


def loaded(schedule: Schedule, periods: int, streams: Streams = ONE_COPY_STREAM) -> Trace:
    """The same without the preload, whose modules are there."""
    trace = in_order(schedule, periods, streams)
    holds = dict(schedule.preload)
    trace.holds = tuple(holds.get(slot, -1) for slot in range(schedule.ring.slots))
    trace.issued = [one for one in trace.issued if one.boundary.half != "preload"]
    return trace
