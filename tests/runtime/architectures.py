"""Small random models of transformers and diffusers, one of each kind, and what they are fed.

Every weight is random, also those that a model starts at zero or one: so no two layers are alike,
and none leaves its input as it is.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

WIDTH, WORDS = 16, 32


@dataclass(frozen=True)
class Architecture:
    """One kind of model.

    model: its class, and its config's where that is another one.     sizes: its config.
    inputs: of a forward.        blocks: its layers, in the order in which they run.
    by_hand: why they are given to ``offload`` and not found; empty if they are found.
    """

    model: str
    sizes: dict[str, Any]
    inputs: dict[str, torch.Tensor]
    blocks: tuple[str, ...]
    by_hand: str = ""
    library: str = "transformers"


@cache
def built(name: str) -> Any:
    """The plain model; not to be changed."""
    return make(ARCHITECTURES[name])


def make(kind: Architecture) -> Any:
    library = pytest.importorskip(kind.library)
    model_name, _, config_name = kind.model.partition(" ")
    made = getattr(library, model_name)
    torch.manual_seed(0)
    if kind.library == "diffusers":
        model = made(**kind.sizes)
    else:
        config = getattr(library, config_name) if config_name else made.config_class
        model = made(config(**kind.sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    return model.eval()


def fresh(name: str) -> Any:
    return copy.deepcopy(built(name))


def layers_of(name: str, model: nn.Module) -> list[nn.Module]:
    return [model.get_submodule(block) for block in ARCHITECTURES[name].blocks]


def to_offload(name: str, model: nn.Module) -> list[nn.Module] | None:
    """What to pass as ``layers``."""
    return layers_of(name, model) if ARCHITECTURES[name].by_hand else None


def forward(name: str, model: nn.Module, device: str = "cpu") -> list[torch.Tensor]:
    """All tensors that a forward gives, on the CPU."""
    inputs = {key: value.to(device) for key, value in ARCHITECTURES[name].inputs.items()}
    with torch.no_grad():
        given = model(**inputs, return_dict=False)
    return [leaf.cpu() for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]


def generate(name: str, model: Any, tokens: int = 3) -> list[torch.Tensor]:
    """Greedy tokens with a cache, and the logits that they were chosen from; nothing from a model
    that generates none."""
    if ARCHITECTURES[name].library == "diffusers" or not model.can_generate():
        return []
    inputs = dict(ARCHITECTURES[name].inputs)
    inputs.pop("decoder_input_ids", None)
    given = model.generate(
        **inputs,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return [given.sequences, *given.logits]


def _tokens(length: int) -> torch.Tensor:
    return torch.randint(1, WORDS, (2, length), generator=torch.Generator().manual_seed(1))


def _values(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def _in(*lists: tuple[str, int]) -> tuple[str, ...]:
    return tuple(f"{path}.{at}" for path, length in lists for at in range(length))


_TEXT = {"input_ids": _tokens(6)}
_TO = {"decoder_input_ids": _tokens(4)}
_PIXELS = {"pixel_values": _values(2, 3, 16, 16)}
_ENDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
_PLAIN: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
}
_GROUPED = {**_PLAIN, "num_key_value_heads": 1, "head_dim": 8}
_IMAGE = {"image_size": 16, "patch_size": 8}
_TOWER = {**_PLAIN, **_IMAGE, **_ENDS, "max_position_embeddings": 16}
_TOWERS = {"text_config": _TOWER, "vision_config": _TOWER}
_BART: dict[str, Any] = {
    **_ENDS,
    "vocab_size": WORDS,
    "d_model": WIDTH,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": WIDTH,
    "decoder_ffn_dim": WIDTH,
    "decoder_start_token_id": 0,
}
_BART_BLOCKS = _in(("model.encoder.layers", 3), ("model.decoder.layers", 2))
_LAYERS = _in(("model.layers", 4))

_ORDER = "found in the order in which they hang, which is another one"

ARCHITECTURES: dict[str, Architecture] = {
    # decoders: plain, with a sliding window, with Conv1D
    "Llama": Architecture("LlamaForCausalLM", _GROUPED, _TEXT, _LAYERS),
    "Gemma3": Architecture(
        "Gemma3ForCausalLM Gemma3TextConfig",
        _GROUPED
        | {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 3},
        _TEXT,
        _LAYERS,
    ),
    "GPT2": Architecture(
        "GPT2LMHeadModel",
        _ENDS
        | {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 5, "n_head": 2, "n_positions": 16},
        _TEXT,
        _in(("transformer.h", 5)),
    ),
    # encoders: plain, and with groups of tied layers
    "BERT": Architecture("BertForMaskedLM", _PLAIN, _TEXT, _in(("bert.encoder.layer", 4))),
    "ALBERT": Architecture(
        "AlbertModel",
        _PLAIN | {"embedding_size": 8, "num_hidden_groups": 4},
        _TEXT,
        _in(("encoder.albert_layer_groups", 4)),
    ),
    # encoders with decoders
    "T5": Architecture(
        "T5ForConditionalGeneration",
        {"vocab_size": WORDS, "d_model": WIDTH, "d_kv": 8, "d_ff": WIDTH, "num_layers": 3}
        | {"num_decoder_layers": 2, "num_heads": 2, "decoder_start_token_id": 0},
        _TEXT | _TO,
        _in(("encoder.block", 3), ("decoder.block", 2)),
    ),
    "BART": Architecture(
        "BartForConditionalGeneration",
        _BART | {"max_position_embeddings": 16},
        _TEXT | _TO,
        _BART_BLOCKS,
    ),
    # mixtures of experts
    "Mixtral": Architecture(
        "MixtralForCausalLM",
        _GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
        _TEXT,
        _LAYERS,
    ),
    "Qwen3-MoE": Architecture(
        "Qwen3MoeForCausalLM",
        _GROUPED | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        _TEXT,
        _LAYERS,
    ),
    # state spaces, alone and with attention and experts between
    "Mamba": Architecture(
        "MambaForCausalLM",
        {"vocab_size": WORDS, "hidden_size": WIDTH, "state_size": 4, "num_hidden_layers": 4},
        _TEXT,
        _in(("backbone.layers", 4)),
    ),
    "Jamba": Architecture(
        "JambaForCausalLM",
        _GROUPED
        | {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2}
        | {"expert_layer_period": 2, "expert_layer_offset": 1}
        | {"mamba_d_state": 4, "mamba_dt_rank": 4},
        _TEXT,
        _LAYERS,
    ),
    # vision, and with text beside it
    "ViT": Architecture("ViTModel", _PLAIN | _IMAGE, _PIXELS, _in(("layers", 4))),
    "CLIP": Architecture(
        "CLIPModel",
        _TOWERS,
        _TEXT | _PIXELS,
        _in(("vision_model.encoder.layers", 4), ("text_model.encoder.layers", 4)),
        _ORDER,
    ),
    "Siglip": Architecture(
        "SiglipModel",
        _TOWERS,
        _TEXT | _PIXELS,
        _in(("vision_model.encoder.layers", 4), ("text_model.encoder.layers", 4)),
        _ORDER,
    ),
    # speech: an encoder, and one with a decoder
    "Wav2Vec2": Architecture(
        "Wav2Vec2Model",
        _PLAIN
        | {"conv_dim": (8, 8), "conv_stride": (4, 4), "conv_kernel": (8, 4)}
        | {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4}
        | {"num_conv_pos_embedding_groups": 2},
        {"input_values": _values(2, 400)},
        _in(("encoder.layers", 4)),
    ),
    "Whisper": Architecture(
        "WhisperForConditionalGeneration",
        _BART
        | {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 8}
        | {"begin_suppress_tokens": None, "suppress_tokens": None},
        {"input_features": _values(2, 8, 20)} | _TO,
        _BART_BLOCKS,
    ),
    # of diffusers
    "UNet": Architecture(
        "UNet2DConditionModel",
        {"block_out_channels": (8, 16), "layers_per_block": 1, "sample_size": 8}
        | {"down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D")}
        | {"up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D")}
        | {"cross_attention_dim": 16, "attention_head_dim": 4, "norm_num_groups": 4},
        {"sample": _values(2, 4, 8, 8), "timestep": torch.tensor([3, 7])}
        | {"encoder_hidden_states": _values(2, 5, 16)},
        (
            "down_blocks.0.resnets.0",
            "down_blocks.1.resnets.0",
            "down_blocks.1.attentions.0.transformer_blocks.0",
            "mid_block.resnets.0",
            "mid_block.attentions.0.transformer_blocks.0",
            "mid_block.resnets.1",
            "up_blocks.0",
            "up_blocks.1",
        ),
        _ORDER,
        "diffusers",
    ),
    "Flux": Architecture(
        "FluxTransformer2DModel",
        {"in_channels": 4, "num_layers": 2, "num_single_layers": 3, "attention_head_dim": 16}
        | {"num_attention_heads": 2, "joint_attention_dim": 16, "pooled_projection_dim": 8}
        | {"axes_dims_rope": (4, 4, 8)},
        {"hidden_states": _values(1, 4, 4), "encoder_hidden_states": _values(1, 3, 16)}
        | {"pooled_projections": _values(1, 8), "timestep": torch.tensor([0.5])}
        | {"img_ids": _values(4, 3), "txt_ids": _values(3, 3)},
        _in(("transformer_blocks", 2), ("single_transformer_blocks", 3)),
        library="diffusers",
    ),
    "AutoencoderKL": Architecture(
        "AutoencoderKL",
        {"block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4}
        | {"down_block_types": ("DownEncoderBlock2D",) * 2}
        | {"up_block_types": ("UpDecoderBlock2D",) * 2},
        {"sample": _values(1, 3, 16, 16)},
        _in(
            ("encoder.down_blocks.0.resnets", 1),
            ("encoder.down_blocks.1.resnets", 1),
            ("encoder.mid_block.resnets", 2),
            ("decoder.mid_block.resnets", 2),
            ("decoder.up_blocks.0.resnets", 2),
            ("decoder.up_blocks.1.resnets", 2),
        ),
        _ORDER,
        "diffusers",
    ),
}
