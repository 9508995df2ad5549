"""Models of transformers that keep a cache, and what generate() gives with a cache of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import nn

TOKENS = 5
CACHES = ("dynamic", "static")
LAYERS = {"Qwen3": "model.layers", "T5": "decoder.block"}
"""By model the three layers that run once a token."""

PROMPT = torch.randint(1, 64, (2, 6), generator=torch.Generator().manual_seed(0))


@cache
def built(kind: str) -> nn.Module:
    """A small model with random weights; attention is plain, which rounds alike everywhere."""
    import transformers

    torch.manual_seed(0)
    common: dict[str, Any] = {"vocab_size": 64, "eos_token_id": None, "pad_token_id": 0}
    if kind == "Qwen3":
        config = transformers.Qwen3Config(
            num_hidden_layers=3,
            hidden_size=32,
            intermediate_size=64,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            initializer_range=0.5,
            attn_implementation="eager",
            **common,
        )
        return transformers.Qwen3ForCausalLM(config).eval()
    config = transformers.T5Config(
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=3,
        num_heads=4,
        decoder_start_token_id=0,
        initializer_factor=5.0,
        attn_implementation="eager",
        **common,
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def ask(model: nn.Module, cache: str, device: str = "cpu") -> Any:
    """Greedy tokens, their logits and the cache at the end."""
    prompt = PROMPT.to(device)
    return model.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=TOKENS,
        do_sample=False,
        cache_implementation=cache,
        output_logits=True,
        return_dict_in_generate=True,
    )


def same_answer(one: Any, other: Any) -> bool:
    """Tokens and logits, bit for bit."""
    logits = zip(one.logits, other.logits, strict=True)
    return torch.equal(one.sequences.cpu(), other.sequences) and all(
        torch.equal(a.cpu(), b) for a, b in logits
    )


def tensors(answer: Any) -> Iterator[torch.Tensor]:
    """The keys and values in the cache."""
    found = answer.past_key_values
    parts = [
        getattr(found, name, None) for name in ("self_attention_cache", "cross_attention_cache")
    ]
    for part in [one for one in parts if one is not None] or [found]:
        for layer in part.layers:
            yield from (layer.keys, layer.values)
