"""SmolLM2 in a third of its memory, by a plan: its tokens are the whole model's."""

from __future__ import annotations

import pytest
import torch

import runtime
from runtime import demo
from tests.runtime.plans import bytes_in

TOKENS = 4


def test_smollm2_in_a_third_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = demo.smollm2()
    if subject is None:
        pytest.skip("the demo's model is not installed: make demo")
    monkeypatch.setattr("runtime.link.LARGEST", 1 << 22)
    whole = sum(parameter.nbytes for parameter in subject.model.parameters())
    wanted = demo.ask(subject, TOKENS)
    with runtime.offload(subject.model, memory=whole // 3) as offloaded:
        plan, before = offloaded.plan, offloaded.report()
        answer = demo.ask(subject, TOKENS)
        report = offloaded.report()
    assert answer.tokens == wanted.tokens
    assert torch.equal(answer.logits, wanted.logits)
    assert len(set(answer.tokens)) > 1
    assert plan is not None
    assert plan.schedule.ring.modules == 30
    assert report.bytes_device <= plan.memory <= whole // 3
    assert plan.unused < whole // 100
    assert report.misses == 0
    assert report.copies - before.copies == plan.schedule.copies * TOKENS // plan.schedule.period
    moved = bytes_in(plan.schedule, plan.moved) * TOKENS // plan.schedule.period
    assert report.bytes_copied - before.bytes_copied == moved > 0
