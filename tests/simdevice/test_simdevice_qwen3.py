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
from schedule.audit import audit
from tests.regressions.test_regression_vllm_ascend_10932 import (
    CASE,
    OFFLOADED,
    PROMPT,
    PROVED,
    TOKENS,
    Answer,
    ask,
    plain,
    wanted,
)
from tests.runtime.models import block_bytes, copies_in
from tests.simdevice.device import SimDevice, start
from tests.simdevice.helpers import DEVICE
from tests.simdevice.test_simdevice_architectures import allocated

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
    size, weights = block_bytes(layer), sum(p.nbytes for p in layer.parameters())
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


def decoded(model: nn.Module, device: str, offloaded: runtime.Offloaded | None) -> Answer:
    """Prefill eagerly, then a token at a time, all over a static cache; where the model is
    offloaded, by replays of one graph."""
    from transformers import StaticCache

    batch, length = PROMPT.shape
    cache = StaticCache(config=model.config, max_cache_len=length + TOKENS)
    token = torch.zeros(batch, 1, dtype=torch.long, device=device)
    position = torch.zeros(batch, 1, dtype=torch.long, device=device)

    def step() -> torch.Tensor:
        return model(token, cache=cache, position_ids=position, use_cache=True).logits[:, -1]

    logits = [model(PROMPT.to(device), cache=cache, use_cache=True).logits[:, -1].cpu()]
    graph = None
    for number in range(TOKENS - 1):
        token.copy_(logits[-1].argmax(-1, keepdim=True))
        position.fill_(length + number)
        if offloaded is not None and graph is None:
            graph = offloaded.capture(step)
            cache.crop(-1)  # what the pass that warmed up added
        if graph is None:
            logits.append(step().cpu())
        else:
            graph.replay()
            logits.append(graph.output.cpu())
    found = torch.stack(logits, 1)
    return Answer(found.argmax(-1), found.log_softmax(-1))


@pytest.mark.parametrize("policy", ["slot_local", "double_buffer"])
def test_eager_prefill_and_replayed_decode(sim: SimDevice, model: nn.Module, policy: str) -> None:
    """In graph mode, as the report says that it was wrong in both."""
    expected = decoded(copy.deepcopy(plain()), "cpu", None)
    assert torch.equal(expected.tokens, wanted().tokens)
    with (
        runtime.offload(model, policy=policy, device=DEVICE, on_miss="raise", **CASE) as offloaded,
        offloaded.trace() as trace,
        sim.steps(1, "copies"),
    ):
        answer = decoded(model, DEVICE, offloaded)
        report = offloaded.report()
    assert torch.equal(answer.tokens, expected.tokens)
    assert torch.equal(answer.log_probabilities, expected.log_probabilities)
    assert (report.passes, report.misses) == (TOKENS + 1, 0)  # one warmed up
    assert report.copies == copies_in(offloaded.schedule, TOKENS + 1) >= TOKENS
    found = audit(trace)
    assert found.fits, str(found)
    assert (found.runs, found.copies) == (report.runs, report.copies)


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
