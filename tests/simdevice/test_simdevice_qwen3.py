"""The case that this project began with, on the device: Qwen3, 28 layers, one of eight offloaded
over two slots. Greedy tokens and log-probabilities are the plain model's under every proved
policy, and diverge under the old rule. Its copies and its memory are the device's own counts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import runtime
from runtime.unverified import offload_without_proof
from tests.regressions.test_regression_vllm_ascend_10932 import (
    CASE,
    OFFLOADED,
    PROVED,
    TOKENS,
    Answer,
    ask,
    plain,
    wanted,
)
from tests.runtime.models import copies_in
from tests.simdevice.device import SimDevice, start
from tests.simdevice.helpers import DEVICE
from tests.simdevice.test_simdevice_architectures import allocated, in_slots

TO_DEVICE = "host to device"


@pytest.fixture(autouse=True)
def _plain_attention() -> Iterator[None]:
    """Foreign devices have no fused attention; the CPU has one, which rounds differently."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.fixture
def model() -> nn.Module:
    return copy.deepcopy(plain())


def same(given: Answer) -> bool:
    """As the plain model's on the CPU, bit for bit."""
    return torch.equal(given.tokens, wanted().tokens) and torch.equal(
        given.log_probabilities, wanted().log_probabilities
    )


@cache
def copies_of_the_plain_model() -> int:
    """How many copies to the device the plain model's answer takes there: those of ``generate``."""
    there = copy.deepcopy(plain()).to(DEVICE)
    start().reset_counters()
    assert same(ask(there, DEVICE))
    return start().counters().copies[TO_DEVICE]


@pytest.mark.parametrize("policy", PROVED)
def test_every_proved_policy_gives_the_plain_models_tokens_and_log_probabilities(
    sim: SimDevice, model: nn.Module, policy: str
) -> None:
    others = copies_of_the_plain_model()
    layer = model.get_submodule(OFFLOADED[0])
    size, weights = in_slots(layer), sum(p.nbytes for p in layer.parameters())
    whole = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    before = allocated()
    with runtime.offload(model, policy=policy, device=DEVICE, **CASE) as offloaded:
        assert offloaded.selection.names == OFFLOADED
        assert allocated() - before == whole - 3 * weights + 2 * size < whole
        sim.reset_counters()
        with sim.steps(1, "copies"):
            assert same(ask(model, DEVICE))
        copies = copies_in(offloaded.schedule, TOKENS)
        assert sim.counters().copies[TO_DEVICE] == others + copies >= others + TOKENS
        assert offloaded.report().misses == 0


def test_the_old_rule_diverges(sim: SimDevice, model: nn.Module) -> None:
    """Twin: with the guard off, by as many copies; with it, all is right."""
    others = copies_of_the_plain_model()
    door: dict[str, Any] = {"policy": "modular", "output_may_be_wrong": True, "device": DEVICE}
    with offload_without_proof(model, **door, **CASE):
        sim.reset_counters()
        with sim.steps(1):
            answer = ask(model, DEVICE)
        assert sim.counters().copies[TO_DEVICE] == others + 3 * TOKENS
    assert (answer.tokens != wanted().tokens).any(0).nonzero()[0] < 9  # the first that differs
    assert not torch.equal(answer.log_probabilities[:, 0], wanted().log_probabilities[:, 0])
    with offload_without_proof(model, guard=True, **door, **CASE) as offloaded, sim.steps(1):
        assert same(ask(model, DEVICE))
        assert offloaded.report().misses > 0
