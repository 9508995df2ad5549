"""Reports of refills that hit the wrong slot, or never came (REPORTS 3.1)."""

from __future__ import annotations

import logging

import pytest
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from schedule import Ring, Schedule, ScheduleViolation, policies, verify
from schedule.operations import COMPUTE, COPY, RAN, Copy, Record, Run, Wait, landed
from schedule.policy import Policy
from schedule.properties import WAR, WAW
from schedule.table import AFTER, PRELOAD, Boundary
from schedule.verifier import check
from schedule.windows import windows
from tests.runtime.models import batches, outputs, same, stack
from tests.schedule.listings import SECOND, TWO, faults, refill


def violated(schedule: Schedule) -> set[str]:
    return {violation.property for violation in check(schedule).violations}


def test_a_module_that_owns_its_slot_is_copied_over_itself() -> None:
    """vLLM #54975: the mended rule never skips a refill, so that with a slot for each module all
    three copies of every pass are useless."""
    schedule = policies.slot_local(Ring(3, 3))
    assert violated(schedule) == set()
    assert [lint.refill.module for lint in check(schedule).lints] == [0, 1, 2]
    assert schedule.copies == 3
    found = {}
    for policy in ("slot_local", "chain"):
        model = stack(3)
        with runtime.offload(model, slots=3, policy=policy) as offloaded:
            outputs(model, batches(4))
            report = offloaded.report()
            found[policy] = report.copies, report.redundant
    assert found == {"slot_local": (12, 12), "chain": (0, 0)}


def reloads(groups: int, counted: int) -> Schedule:
    """Groups are offloaded first to last and come back last to first, each to the buffer of its
    own parity; after each, the next but one comes back. ``counted`` is what the parity of the
    buffer that is written is counted from."""

    def slot_of(step: int, ring: Ring) -> int:
        return (ring.modules - 1 - step) % ring.slots

    def rule(boundary: Boundary, slot: int, ring: Ring) -> int | None:
        half, step = boundary
        if half == PRELOAD:
            return next(s for s in range(ring.slots) if slot_of(s, ring) == slot)
        if half != AFTER or slot != (counted - step) % ring.slots:
            return None
        return (step + 2) % ring.modules

    return Policy("reload backwards", slot_of, refill=rule)(Ring(groups, 2))


def test_a_reload_lands_in_the_buffer_that_is_still_unread() -> None:
    """TransformerEngine #2341: the buffer came from the parity of the reloads, not of the groups,
    so that a reload overwrote the group that is read next."""
    assert violated(reloads(groups=4, counted=3)) == set()
    with pytest.raises(ScheduleViolation) as caught:
        verify(reloads(groups=4, counted=0))
    first = caught.value.violations[0]
    assert (first.property, first.slot, first.needs, first.has) == ("ownership", 0, 1, 2)


def test_one_staging_buffer_for_two_copy_streams() -> None:
    """local-inference-lab/vllm #177: slots were owned, but the staging buffer before them was
    shared by two streams of which neither waited for the other."""
    staging = 9
    gather = Copy(COPY, staging, 0), Record(COPY, landed(staging)), Wait(COMPUTE, landed(staging))
    first = *gather, Run(COMPUTE, staging, 0), Record(COMPUTE, RAN)
    second = Copy(SECOND, staging, 1)
    assert faults(*first, second, streams=TWO) == [(WAR, 5, 3), (WAW, 5, 0)]
    assert faults(*first, Wait(SECOND, RAN), second, streams=TWO) == []


def test_a_slot_is_released_before_its_last_reader() -> None:
    """lcls2 #108: the slot was given back by an event from before a late consumer's kernel, which
    then read the next event's data."""
    first = *refill(0, 0), Wait(COMPUTE, landed(0), 0), Run(COMPUTE, 0, 0)
    release, late = Record(COMPUTE, RAN), Run(COMPUTE, 0, 0)
    again = Wait(COPY, RAN), Copy(COPY, 0, 1)
    assert faults(*first, release, late, *again) == [(WAR, 9, 7)]
    assert faults(*first, late, release, *again) == []


def not_circular(index: int, slots: int, modules: int) -> int | None:
    return index + slots if index + slots < modules else None


def test_the_last_layers_do_not_bring_the_first_back() -> None:
    """sglang #16066: the first request was right and the second wrong, since nothing brought
    layer 0 back."""
    schedule = policies.from_target(not_circular, Ring(3, 2))
    found = [v for v in check(schedule).violations if v.property == "closure"]
    assert [(v.needs, v.has, v.trace[v.run]) for v in found] == [(0, 2, ("run", 3, 0, 0))]
    expected = outputs(stack(3), batches(2))
    model = stack(3)
    options = {"slots": 2, "policy": schedule, "output_may_be_wrong": True}
    with offload_without_proof(model, **options):
        first, second = outputs(model, batches(2))
        assert same([first], expected[:1])
        assert not same([second], expected[1:])
    with offload_without_proof(model, guard=True, **options) as offloaded:
        assert same(outputs(model, batches(2)), expected)
        assert offloaded.report().misses == 1
    with pytest.raises(ScheduleViolation, match="closure"):
        runtime.offload(model, slots=2, policy=not_circular)


def test_fewer_slots_than_consecutive_layers(caplog: pytest.LogCaptureFixture) -> None:
    """vllm-ascend #11945, a comment: with one slot for pairs of neighbouring layers the second of
    each pair waits for the whole of its copy. Its window is 0, and one slot more is named."""
    assert windows(policies.chain(Ring(4, 1))) == (0, 0, 0, 0)
    assert windows(policies.chain(Ring(4, 2))) == (1, 1, 1, 1)
    said = []
    for slots in (1, 2, 3):
        caplog.clear()
        model = [nn.Linear(200, 200, bias=False) for _ in range(4)]
        with (
            caplog.at_level(logging.INFO, "ringproof.runtime"),
            runtime.offload(model, slots=slots),
        ):
            said.append(caplog.messages[0].partition("policy ")[2])
    more = "copies a pass; one slot more (0.2 MB) would save"
    assert said == [
        "single_buffer: 4 copies a pass",
        f"double_buffer: 4 {more} 2 of them",
        f"double_buffer: 2 {more} 2 of them",
    ]
