"""Small random models of transformers: logits and generated tokens are bit for bit those of the
plain model, with a cache, and layers are found by themselves.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.unverified import offload_without_proof

pytestmark = pytest.mark.usefixtures("sanitized")

TOKENS = 6
SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
    "initializer_range": 0.5,
}


@dataclass(frozen=True)
class Answer:
    """Tokens and the logits that they were chosen from."""

    tokens: torch.Tensor
    logits: torch.Tensor

    def same(self, other: Answer) -> bool:
        return torch.equal(self.tokens, other.tokens) and torch.equal(self.logits, other.logits)


@cache
def built(kind: str, layers: int) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "Qwen3":
        config = transformers.Qwen3Config(num_hidden_layers=layers, head_dim=8, **SIZE)
        return transformers.Qwen3ForCausalLM(config).eval()
    if kind == "Llama":
        config = transformers.LlamaConfig(num_hidden_layers=layers, **SIZE)
        return transformers.LlamaForCausalLM(config).eval()
    assert kind == "T5"
    config = transformers.T5Config(
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=layers,
        num_heads=4,
        vocab_size=64,
        decoder_start_token_id=0,
        initializer_factor=5.0,
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def fresh(kind: str, layers: int) -> nn.Module:
    return copy.deepcopy(built(kind, layers))


PROMPT = torch.randint(1, 64, (2, 7), generator=torch.Generator().manual_seed(0))


def ask(model: nn.Module, **how: Any) -> Answer:
    """Greedy tokens, with a cache unless ``how`` says otherwise."""
    found = model.generate(
        input_ids=PROMPT,
        attention_mask=torch.ones_like(PROMPT),
        max_new_tokens=TOKENS,
        min_new_tokens=TOKENS,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
        **how,
    )
    return Answer(found.sequences, torch.stack(found.logits))


def forward(model: nn.Module) -> torch.Tensor:
    extra = {"decoder_input_ids": PROMPT[:, :3]} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return model(input_ids=PROMPT, **extra).logits


Case = tuple[nn.Module, Answer, torch.Tensor]
"""A model to offload, and the plain one's answer and logits."""
CASES = [("Qwen3", 3), ("Qwen3", 7), ("Llama", 5), ("T5", 3)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def case(request: pytest.FixtureRequest) -> Case:
    plain = built(*request.param)
    return fresh(*request.param), ask(plain), forward(plain)


@pytest.mark.parametrize("policy", ["balanced", "double_buffer"])
@pytest.mark.parametrize("slots", [2, 3])
def test_logits_and_tokens_are_those_of_the_plain_model(
    case: Case, policy: str, slots: int
) -> None:
    model, answer, logits = case
    modules = blocks(model)
    with runtime.offload(model, slots=slots, policy=policy) as offloaded:
        assert list(offloaded.selection.modules) == modules
        assert torch.equal(forward(model), logits)
        report = offloaded.report()
        assert (report.runs, report.misses) == (len(modules), 0)
        assert report.copies == offloaded.schedule.copies
        assert ask(model).same(answer)
        report = offloaded.report()
        assert report.bytes_slots < report.bytes_offloaded or slots >= len(modules)
        if not model.config.is_encoder_decoder:
            # A pass for the forward, and one for each token.
            assert (report.passes, report.misses) == (1 + TOKENS, 0)
            assert report.copies == (1 + TOKENS) * offloaded.schedule.copies
    assert ask(model).same(answer)


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers, found by hand."""
    if model.config.is_encoder_decoder:
        return [*model.encoder.block, *model.decoder.block]
    return list(model.model.layers)


def test_an_encoder_that_runs_once_costs_misses_but_no_wrong_token() -> None:
    """In every later pass the decoder's layers alone run."""
    model = fresh("T5", 3)
    answer = ask(built("T5", 3))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert ask(model).same(answer)
        assert offloaded.report().runs == 3 + TOKENS * 3
        assert offloaded.report().misses > 0
    decoder = list(model.decoder.block)
    with runtime.offload(model, decoder, slots=2, policy="chain") as offloaded:
        assert ask(model).same(answer)
        assert (offloaded.report().runs, offloaded.report().misses) == (TOKENS * 3, 0)


@pytest.mark.parametrize("kind", ["Qwen3", "Llama"])
def test_under_the_old_rule_they_differ(kind: str) -> None:
    """Twin: vllm-ascend's case, three modules and two slots."""
    model = fresh(kind, 3)
    wanted, answer = forward(built(kind, 3)), ask(built(kind, 3))
    with offload_without_proof(
        model, slots=2, policy="modular", output_may_be_wrong=True
    ) as offloaded:
        assert not torch.equal(forward(model), wanted)
        assert not ask(model).same(answer)
        assert offloaded.report().misses == 0
    with offload_without_proof(
        model, slots=2, policy="modular", output_may_be_wrong=True, guard=True
    ) as offloaded:
        assert torch.equal(forward(model), wanted)
        assert ask(model).same(answer)
        assert offloaded.report().misses > 0


def test_tied_embeddings_stay_beside_the_slots() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        num_hidden_layers=3, head_dim=8, tie_word_embeddings=True, **SIZE
    )
    model = transformers.Qwen3ForCausalLM(config).eval()
    wanted = ask(copy.deepcopy(model))
    with runtime.offload(model, slots=2) as offloaded:
        assert ask(model).same(wanted)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        report = offloaded.report()
        assert report.stay == ()  # they are the rest's, not a layer's
        assert report.bytes_whole == sum(
            t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()]
        )


def test_save_pretrained_while_offloaded(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    model = fresh("Llama", 5)
    wanted = forward(built("Llama", 5))
    with runtime.offload(model, slots=2):
        forward(model)
        model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(forward(loaded), wanted)
