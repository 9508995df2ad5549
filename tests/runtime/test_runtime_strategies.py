"""The runtime, driven by the strategies for users: it issues what ``proofs.arrivals`` says."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs import strategies
from proofs.arrivals import arrive, misses
from runtime.unverified import offload_without_proof
from schedule.table import PRELOAD
from tests.runtime.models import Seer, Walked, batches, wrong

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=60)


@FIXED
@given(strategies.schedules(), st.data())
def test_in_any_order_the_runtime_issues_what_arrivals_say(
    drawn: strategies.LabelledSchedule, data: st.DataObject
) -> None:
    schedule = drawn.schedule
    order = data.draw(strategies.orders(schedule.ring.modules))
    expected = arrive(schedule, [one.modules for one in order])
    log: list[tuple[Seer, float]] = []
    model = Walked([Seer(log) for _ in range(schedule.ring.modules)])
    with (
        torch.no_grad(),
        offload_without_proof(
            model,
            list(model.layers),
            slots=schedule.ring.slots,
            policy=schedule,
            output_may_be_wrong=True,
            guard=True,
        ) as offloaded,
        offloaded.trace() as trace,
    ):
        for one, x in zip(order, batches(len(order)), strict=True):
            model(x, one.modules)
        report = offloaded.report()
    issued = [one for one in expected if one.boundary.half != PRELOAD]
    assert trace.issued == issued
    assert report.misses == misses(expected)
    assert len(log) == sum(len(one.modules) for one in order)
    assert wrong(log) == []
