"""What is found in real architectures: all kinds of blocks, the outermost, nothing else.

The models are on the meta device: they have shapes and no values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from runtime.find import find
from schedule import OffloadError
from tests.runtime.models import Block, Stack

SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
}
TEXT = {**SIZE, "vocab_size": 64, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
SEQ2SEQ: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "vocab_size": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "pad_token_id": 0,
}


def of(name: str, head: str = "Model", **sizes: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        transformers = pytest.importorskip("transformers")
        config = getattr(transformers, f"{name}Config")(**sizes)
        return getattr(transformers, f"{name}{head}")(config)

    return build


def diffuser(name: str, **sizes: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(pytest.importorskip("diffusers"), name)(**sizes)


CAUSAL, GENERATION = "ForCausalLM", "ForConditionalGeneration"
VISION = {**SIZE, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8}
FOUND: dict[str, tuple[Callable[[], nn.Module], dict[str, int]]] = {
    "Qwen3": (of("Qwen3", CAUSAL, head_dim=8, **TEXT), {"model.layers.# Qwen3DecoderLayer": 3}),
    "GPT2": (
        of("GPT2", CAUSAL.replace("ForCausalLM", "LMHeadModel"), n_embd=32, n_layer=3, n_head=4),
        {"transformer.h.# GPT2Block": 3},
    ),
    "Mixtral": (
        of("Mixtral", CAUSAL, num_key_value_heads=2, **TEXT),
        {"model.layers.# MixtralDecoderLayer": 3},
    ),
    "Mamba, not the mixer inside": (
        of("Mamba", CAUSAL, hidden_size=32, num_hidden_layers=2, vocab_size=64),
        {"backbone.layers.# MambaBlock": 2},
    ),
    "Bert, not its embeddings": (of("Bert", **TEXT), {"encoder.layer.# BertLayer": 3}),
    "Longformer, whose kind is an attention": (
        of("Longformer", attention_window=4, **TEXT),
        {"encoder.layer.# LongformerLayer": 3},
    ),
    "T5": (
        of("T5", GENERATION, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=64),
        {"encoder.block.# T5Block": 2, "decoder.block.# T5Block": 2},
    ),
    "Bart": (
        of("Bart", GENERATION, **SEQ2SEQ),
        {
            "model.encoder.layers.# BartEncoderLayer": 2,
            "model.decoder.layers.# BartDecoderLayer": 3,
        },
    ),
    "Whisper": (
        of("Whisper", GENERATION, **SEQ2SEQ),
        {
            "model.encoder.layers.# WhisperEncoderLayer": 2,
            "model.decoder.layers.# WhisperDecoderLayer": 3,
        },
    ),
    "Hubert": (of("Hubert", **TEXT), {"encoder.layers.# HubertEncoderLayer": 3}),
    "ViT": (of("ViT", **VISION), {"layers.# ViTLayer": 2}),
    "Swin": (
        of("Swin", embed_dim=16, depths=[1, 1, 2], num_heads=[2, 2, 2]),
        {"encoder.layers.# SwinStage": 3},
    ),
    "CLIP, both towers": (
        of("CLIP", text_config=TEXT, vision_config=VISION),
        {
            "text_model.encoder.layers.# CLIPEncoderLayer": 3,
            "vision_model.encoder.layers.# CLIPEncoderLayer": 2,
        },
    ),
    "SmolVLM, whose vision kind is an attention": (
        of(
            "SmolVLM",
            GENERATION,
            vision_config=VISION,
            text_config={"model_type": "llama", "num_key_value_heads": 2, **TEXT},
            pad_token_id=0,
        ),
        {
            "model.vision_model.encoder.layers.# SmolVLMEncoderLayer": 2,
            "model.text_model.layers.# LlamaDecoderLayer": 3,
        },
    ),
    "Albert, which says nothing": (
        of("Albert", embedding_size=16, **TEXT),
        {"encoder.albert_layer_groups.# AlbertLayerGroup": 1},
    ),
    "Flux": (
        diffuser(
            "FluxTransformer2DModel",
            in_channels=4,
            num_layers=2,
            num_single_layers=3,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=(4, 4, 8),
        ),
        {
            "transformer_blocks.# FluxTransformerBlock": 2,
            "single_transformer_blocks.# FluxSingleTransformerBlock": 3,
        },
    ),
    "UNet": (
        diffuser(
            "UNet2DConditionModel",
            block_out_channels=(4, 8),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=8,
            norm_num_groups=2,
            attention_head_dim=2,
        ),
        {
            "down_blocks.#.resnets.# ResnetBlock2D": 4,
            "down_blocks.#.attentions.#.transformer_blocks.# BasicTransformerBlock": 2,
            "up_blocks.# CrossAttnUpBlock2D": 1,
            "up_blocks.# UpBlock2D": 1,
            "mid_block.attentions.#.transformer_blocks.# BasicTransformerBlock": 1,
            "mid_block.resnets.# ResnetBlock2D": 2,
        },
    ),
    "AutoencoderKL": (
        diffuser(
            "AutoencoderKL",
            block_out_channels=[4, 8],
            down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2,
            norm_num_groups=2,
        ),
        {
            "encoder.down_blocks.#.resnets.# ResnetBlock2D": 2,
            "encoder.mid_block.resnets.# ResnetBlock2D": 2,
            "decoder.up_blocks.#.resnets.# ResnetBlock2D": 4,
            "decoder.mid_block.resnets.# ResnetBlock2D": 2,
        },
    ),
}


def table(model: nn.Module) -> dict[str, int]:
    """The blocks found, by place and class; numbers in their names are ``#``."""
    names = {id(module): name for name, module in model.named_modules()}
    places = (re.sub(r"\d+", "#", names[id(m)]) + f" {type(m).__name__}" for m in find(model))
    return dict(Counter(places))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", FOUND)
def test_blocks_of_architectures(name: str) -> None:
    build, wanted = FOUND[name]
    with torch.device("meta"):
        assert table(build()) == wanted


# ---- odd words


def nested(**attributes: object) -> nn.Module:
    """A model around one of blocks, embeddings and a projector that occurs once."""
    inner = nn.ModuleDict(
        {
            "embed": BlockEmbeddings(),
            "positions": BlockEmbeddings(),
            "layers": nn.ModuleList(Block() for _ in range(3)),
            "projector": Once(),
        }
    )
    for name, value in attributes.items():
        setattr(inner, name, value)
    return nn.ModuleDict({"inner": inner, "head": nn.Linear(8, 8)})


class BlockEmbeddings(Block):
    """Not to be split, and no block."""


class Once(Block):
    """A kind of which there is one."""


BLOCKS = {"inner.layers.# Block": 3}
KINDS: dict[str, object] = {
    "of a model inside": ["Block"],
    "a set": {"Block"},
    "a string": "Block",
    "None": None,
    "no list": AttributeError(),
    "with an embedding": ["BlockEmbeddings", "Block"],
    "with a kind that occurs once": ["Once", "Block"],
    "a kind that occurs once": ["Once"],
    "a part of each block": ["Linear"],
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("word", ["_no_split_modules", "_repeated_blocks"])
def test_odd_words(name: str, word: str) -> None:
    if name == "a part of each block":
        # The others of this kind are none of a list's members, and taken as they are.
        parts = ("embed", "positions", "projector")
        found = {f"inner.{part}.{name} Linear" for part in parts for name in ("up", "down")}
        found.add("head Linear")
        assert table(nested(**{word: KINDS[name]})) == BLOCKS | dict.fromkeys(found, 1)
    else:
        assert table(nested(**{word: KINDS[name]})) == BLOCKS


def test_a_single_block_that_is_nearly_the_whole_model_is_passed_over() -> None:
    whole = Stack(Block() for _ in range(4))
    model = nn.ModuleDict({"whole": nn.ModuleList([whole])})
    model._no_split_modules = ["Stack"]
    assert table(model) == {"whole.#.layers.# Block": 4}
    whole.layers = nn.ModuleList([Block(40)])  # there is nothing better now
    assert table(model) == {"whole.# Stack": 1}
    whole.embed = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])  # nor is this
    assert table(model) == {"whole.# Stack": 1}


def test_a_block_that_hangs_twice_is_found_once() -> None:
    shared = Block()
    model = nn.ModuleDict({"a": nn.ModuleList([shared, Block()]), "b": nn.ModuleList([shared])})
    model._no_split_modules = ["Block"]
    assert table(model) == {"a.# Block": 2}


def test_a_kind_without_forward_is_no_block() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Block(), Block(), Block()])

    model = nn.ModuleDict({"a": Holder(), "b": Holder()})
    model._no_split_modules = ["Holder", "Block"]
    assert table(model) == {"a.parts.# Block": 3, "b.parts.# Block": 3}


class Branches(nn.Module):
    """Blocks that hang under names."""

    def __init__(self, box: type[nn.Module], **beside: nn.Module) -> None:
        super().__init__()
        self.box = box()
        blocks = {name: nn.Sequential(nn.Linear(8, 8), nn.GELU()) for name in ("text", "image")}
        for name, block in (blocks | beside).items():
            self.box.add_module(name, block)


def test_blocks_in_a_dictionary_are_found() -> None:
    assert table(Branches(nn.ModuleDict)) == dict.fromkeys(
        ("box.text Sequential", "box.image Sequential"), 1
    )


@pytest.mark.parametrize("box", [nn.ModuleDict, nn.Module])
def test_what_a_block_has_inside_is_not_taken_for_the_layers(box: type[nn.Module]) -> None:
    with pytest.raises(OffloadError, match=r"^no layers were found in Branches: .* ModuleDict of"):
        find(Branches(box, head=nn.Linear(8, 8)))
