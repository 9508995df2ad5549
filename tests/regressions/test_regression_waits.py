"""Reports of missing waits (REPORTS 3.2), as programs; the same on a device that races is in
``tests/simdevice/test_simdevice_regressions.py``."""

from __future__ import annotations

from schedule import Ring, policies
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Listing,
    Record,
    Run,
    Streams,
    Wait,
    landed,
)
from schedule.order import order
from schedule.program import lower, lower_write
from schedule.properties import RAW, WAR
from schedule.table import Refill
from tests.schedule.listings import SHOWN, faults, refill, run


def chain(passes: int) -> Listing:
    return lower(policies.chain(Ring(3, 2))).listing(passes)


def test_the_last_of_a_chain_waits_for_no_copy() -> None:
    """diffusers #11981: a group waited as a side effect of bringing the next one, so that the one
    without a successor read its weights while they were copied."""
    last = Wait(COMPUTE, landed(0), 2)
    broken = tuple(each for each in chain(1) if each.operation != last)
    assert len(broken) == len(chain(1)) - 1
    found = order(broken)
    ((fault),) = found.faults
    assert fault.property == RAW
    assert fault.earlier is not None
    assert found.tasks[fault.later].operation == Run(COMPUTE, 0, 2)
    assert found.tasks[fault.earlier].operation == Copy(COPY, 0, 2)
    assert order(chain(1)).safe


def test_a_transform_on_another_stream_than_its_copy() -> None:
    """ComfyUI #10697: the kernel that casts ran on the compute stream, and nothing made it wait
    for the copy of what it casts."""
    copied = Copy(COPY, 1, 0), Record(COPY, landed(1))
    cast = Run(COMPUTE, 1, 0)
    assert faults(*copied, cast) == [(RAW, 2, 0)]
    assert faults(*copied, Wait(COMPUTE, landed(1), 0), cast) == []
    shared = Copy(COMPUTE, 1, 0), cast  # on one stream it needs no wait
    assert faults(*shared, streams=Streams((COMPUTE,))) == []


def test_a_weight_is_given_back_before_it_was_read() -> None:
    """ComfyUI #10501: the weight went back to the offload stream before compute had used it, and
    the next copy was made into its memory."""
    fork = Record(COMPUTE, RAN), Wait(COPY, RAN)
    used = *refill(0, 0), *run(0, 0)
    assert faults(*used, Copy(COPY, 0, 1)) == [(WAR, 6, 5)]
    assert faults(*used, *fork, Copy(COPY, 0, 1)) == []


def test_a_buffer_that_goes_both_ways_needs_both_events() -> None:
    """vLLM #46278, sglang #20611, vLLM #50360: blocks were stored before compute had written them,
    and read before they were loaded."""
    store = lower_write(Refill(0, 0))
    whole = *refill(0, 0), *run(0, 0), *store
    assert faults(*whole) == []
    loads, stores = Wait(COMPUTE, landed(0), 0), Wait(HOST, RAN)

    def without(wait: Wait) -> list[SHOWN]:
        return faults(*(each for each in whole if each != wait))

    assert without(loads) == [(RAW, 4, 2)]
    assert without(stores) == [(RAW, 10, 5)]
