"""Reports of captured graphs (REPORTS 3.5), as programs. A graph over an offloaded model on a
device is in ``tests/simdevice/test_simdevice_regressions.py``."""

from __future__ import annotations

import pytest

from schedule import Ring, policies
from schedule.graphs import lower_captured
from schedule.operations import (
    COMPUTE,
    COPY,
    Capture,
    Copy,
    EndCapture,
    Event,
    Listing,
    Operation,
    Operations,
    Record,
    Replay,
    Run,
    Wait,
    landed,
)
from schedule.order import order
from schedule.properties import JOINED
from tests.schedule.listings import DRAINED, SECOND, TWO, faults, graph, own, own_refill, refill

LAST = [
    name
    for name, policy in policies.NAMED.items()
    if policy(Ring(5, 2)).period == 1 and policy(Ring(5, 2)).after[-1]
]
"""Policies that refill after the last run of a pass; no run of the pass waits for that copy."""


def captured(policy: str, *dropped: Operation) -> Listing:
    """Capture and one replay of five modules over two slots, without some operations."""
    whole = lower_captured(policies.named(policy)(Ring(5, 2))).listing(1)
    return tuple(issued for issued in whole if issued.operation not in dropped)


@pytest.mark.parametrize("policy", LAST)
def test_the_last_refill_is_forked_in_a_capture_and_never_joined(policy: str) -> None:
    """vLLM #51710: cudaErrorStreamCaptureUnjoined, on six of eight ranks: the last refill of the
    pass was forked within the capture and joined by nothing."""
    join = Wait(COMPUTE, Event("drained", 0, "pass"))
    assert len(captured(policy, join)) == len(captured(policy)) - 1
    found = order(captured(policy, join))
    at_end, at_replay, *_ = [fault for fault in found.faults if fault.property == JOINED]
    ends, begins = (found.listing[found.tasks[f.later].at] for f in (at_end, at_replay))
    assert isinstance(ends.operation, EndCapture)
    assert isinstance(begins.operation, Replay)
    assert order(captured(policy)).holds(JOINED)


def segments(*between: Operation, inside: Operations = ()) -> list[tuple[str, int, int | None]]:
    """A graph that copies module 0, and one that reads it, cut apart by an eager break."""
    first = graph(*own_refill(0, 0), *inside)
    second = Capture(COMPUTE, "h"), Run(COMPUTE, 0, 0), EndCapture(COMPUTE, "h")
    replays = Replay(COMPUTE, "g"), Replay(COMPUTE, "h")
    return faults(*first, *between, *second, *replays)


def test_an_eager_break_leaves_a_copy_pending_across_segments() -> None:
    """vLLM #57759: capture failed only when the host was loaded, or text was wrong in silence: a
    copy of one segment was still under way when the next one began."""
    broken = segments()
    assert {name for name, *_ in broken} == {JOINED, "RAW"}
    assert broken[0] == (JOINED, 5, 3)  # at the end of the first segment already
    assert segments(inside=(Record(COPY, own(DRAINED)), Wait(COMPUTE, own(DRAINED)))) == []


def test_a_capture_waits_for_an_event_from_before_it() -> None:
    """sglang #29166: cudaErrorStreamCaptureIsolation: a prefetch from before the capture was
    waited for inside. It is joined before the capture begins."""
    before, reads = refill(0, 0), Run(COMPUTE, 0, 0)
    join = Record(COPY, DRAINED), Wait(COMPUTE, DRAINED)
    outside = graph(Wait(COMPUTE, landed(0), 0), reads)
    assert faults(*before, *outside) == [(JOINED, 4, 2), (JOINED, 5, None)]
    assert faults(*before, *join, *graph(reads), Replay(COMPUTE, "g")) == []


def test_one_of_two_siblings_is_joined() -> None:
    """NVIDIA/warp #1469, DeepEP #62: of several forked streams only some were joined when a
    capture paused or ended."""
    both = *own_refill(0, 0), *own_refill(1, 1, SECOND)
    joins = [
        (Record(stream, own(Event("drained", n))), Wait(COMPUTE, own(Event("drained", n))))
        for n, stream in enumerate((COPY, SECOND))
    ]
    assert faults(*graph(*both, *joins[0]), streams=TWO) == [(JOINED, 11, 7)]
    assert faults(*graph(*both, *joins[1]), streams=TWO) == [(JOINED, 11, 3)]
    assert faults(*graph(*both, *joins[0], *joins[1]), streams=TWO) == []


def test_the_replay_begins_while_an_eager_copy_is_under_way() -> None:
    """vllm-ascend, no number: prefill ran eagerly, and the graphs of decode read slots that its
    last copies were still being made into."""
    reads, copy = graph(Run(COMPUTE, 0, 0)), Copy(COPY, 0, 0)
    join = Record(COPY, DRAINED), Wait(COMPUTE, DRAINED)
    assert faults(*reads, copy, Replay(COMPUTE, "g")) == [(JOINED, 4, 3), ("RAW", 1, 3)]
    assert faults(*reads, copy, *join, Replay(COMPUTE, "g")) == []
