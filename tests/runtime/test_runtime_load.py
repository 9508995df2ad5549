"""A checkpoint is streamed to where its tensors belong, and gives what the model that it was saved
from gives; if reading fails half way, the model is on the meta device again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import runtime
from runtime.checkpoint import CODES, Stored, open_checkpoint
from schedule import OffloadError
from tests.runtime.checkpoints import N, Tied, on_meta, refused, save, save_sharded, skeleton
from tests.runtime.models import (
    WIDTH,
    Stack,
    as_bytes,
    assert_same_values,
    batches,
    outputs,
    same,
    stack,
)

pytest.importorskip("safetensors")

INPUTS = batches(2)


def as_file(path: Path) -> Path:
    return save(stack(N), path / "any_name.safetensors")


def as_folder(path: Path) -> Path:
    return save(stack(N), path / "model.safetensors").parent


def as_shards(path: Path) -> Path:
    return save_sharded(stack(N), path).parent


FORMS = {
    "file": as_file,
    "folder": as_folder,
    "index": lambda path: save_sharded(stack(N), path),
    "shards": as_shards,
    "text": lambda path: str(as_file(path)),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_gives_what_the_saved_model_gives(form: str, tmp_path: Path) -> None:
    plain, model = stack(N), on_meta()
    objects = dict(model.named_parameters())
    model.layers[1].up.weight.requires_grad_(False)
    model.layers[1].up.weight.note = "kept"
    with runtime.load(model, FORMS[form](tmp_path), slots=2) as offloaded:
        assert same(outputs(model, INPUTS), outputs(plain, INPUTS))
        assert_same_values(model.state_dict(), plain.state_dict())
        weights = sum(t.numel() * t.element_size() for t in plain.layers.parameters())
        assert offloaded.report().bytes_offloaded == weights
    assert {name: id(p) for name, p in model.named_parameters()} == {
        name: id(p) for name, p in objects.items()
    }
    assert {t.device.type for t in model.state_dict().values()} == {"cpu"}
    assert same(outputs(model, INPUTS), outputs(plain, INPUTS))
    assert model.layers[1].up.weight.note == "kept"
    grads = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert grads == {"layers.1.up.weight"}


def test_with_two_tensors_swapped_it_does_not(tmp_path: Path) -> None:
    """Twin."""
    plain, tensors = stack(N), stack(N).state_dict()
    one, other = "layers.1.up.weight", "layers.3.up.weight"
    tensors[one], tensors[other] = tensors[other], tensors[one]
    model = on_meta()
    with runtime.load(model, save(tensors, tmp_path / "swapped.safetensors"), slots=2):
        assert not same(outputs(model, INPUTS), outputs(plain, INPUTS))


class Odd(nn.Module):
    """A parameter of every dtype, a scalar, an empty and a transposed one."""

    def __init__(self) -> None:
        super().__init__()
        made = {f"as_{code}": torch.arange(6).view(2, 3).to(dtype) for dtype, code in CODES.items()}
        made |= {"scalar": torch.tensor(3.0), "empty": torch.ones(0, 4)}
        made |= {"transposed": torch.arange(6.0).view(2, 3).t()}
        for name, tensor in made.items():
            self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scalar + self.transposed.sum()


def odd_stack() -> Stack:
    """Two such layers, and a transposed parameter beside them."""
    made = Stack([Odd(), Odd()])
    made.turned = nn.Parameter(torch.arange(6.0).view(2, 3).t())
    return made


def test_every_dtype_and_layout(tmp_path: Path) -> None:
    plain, model = odd_stack(), on_meta(odd_stack)
    path = save(
        {k: v.contiguous() for k, v in plain.state_dict().items()}, tmp_path / "a.safetensors"
    )
    with runtime.load(model, path, slots=1):
        assert same(outputs(model, INPUTS), outputs(plain, INPUTS))
        assert_same_values(model.state_dict(), plain.state_dict())
    assert model.layers[0].transposed.stride() == model.turned.stride() == (1, 3)
    assert_same_values(model.state_dict(), plain.state_dict())


@pytest.mark.parametrize("left_out", [{"head.weight"}, {"first.weight", "head.weight"}, set()])
def test_one_name_of_a_tied_parameter_is_enough(left_out: set[str], tmp_path: Path) -> None:
    plain, model = Tied().eval(), on_meta(Tied).eval()
    tensors = {k: v.clone() for k, v in plain.state_dict().items() if k not in left_out}
    layers = list(model.body.layers)
    with runtime.load(model, save(tensors, tmp_path / "tied.safetensors"), layers, slots=2):
        assert model.head.weight is model.first.weight
        assert same(outputs(model, INPUTS), outputs(plain, INPUTS))


def test_both_names_must_agree_and_one_must_be_there(tmp_path: Path) -> None:
    tensors = {name: tensor.clone() for name, tensor in Tied().state_dict().items()}
    tensors["head.weight"][3, 3] += 1
    message = (
        r"tied in the model, but not equal .* \(1\): first\.weight and head\.weight and again\.w"
    )
    refused(on_meta(Tied), save(tensors, tmp_path / "a.safetensors"), message)
    del tensors["head.weight"], tensors["first.weight"], tensors["again.weight"]
    message = r"missing from the checkpoint \(1\): first\.weight or head\.weight or again\.weight$"
    refused(on_meta(Tied), save(tensors, tmp_path / "b.safetensors"), message)


def test_real_buffers_get_the_checkpoint_s_values(tmp_path: Path) -> None:
    plain, model = stack(N), on_meta()
    plain.scale.mul_(3)
    path = save(plain, tmp_path / "a.safetensors")
    real = model.scale = torch.ones(WIDTH)
    refused(model, path, "on_miss must be", on_miss="no such")
    assert model.scale is real
    with runtime.load(model, path, slots=2):
        assert same(outputs(model, INPUTS), outputs(plain, INPUTS))
    assert torch.equal(model.scale, plain.scale)
    assert torch.equal(real, torch.ones(WIDTH))


# ---- half way


@pytest.mark.parametrize("read", [0, 1, 7, 20, 23, 24])
def test_when_reading_fails_the_model_is_on_meta_again(
    read: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 tensors are read: 20 of the layers, then the rest."""
    path, model, reads = save(stack(N), tmp_path / "a.safetensors"), on_meta(), 0
    before = skeleton(model)
    complete = Stored.read

    def failing(stored: Stored) -> torch.Tensor:
        nonlocal reads
        if reads == read:
            raise OffloadError("planned")
        reads += 1
        return complete(stored)

    with monkeypatch.context() as patch:
        patch.setattr(Stored, "read", failing)
        with pytest.raises(OffloadError, match="planned"):
            runtime.load(model, path, slots=2)
    assert reads == read
    assert skeleton(model) == before
    with runtime.load(model, path, slots=2):
        assert same(outputs(model, INPUTS), outputs(stack(N), INPUTS))


class Unreadable:
    """An open file whose disk fails."""

    def get_tensor(self, _: str) -> torch.Tensor:
        raise OSError(5, "Input/output error")


def test_a_disk_s_error_names_tensor_and_file() -> None:
    stored = Stored("head.bias", Path("a.safetensors"), (8,), "F32", Unreadable())
    with pytest.raises(
        OffloadError, match=r"reading head\.bias from a\.safetensors failed: .*output"
    ):
        stored.read()


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(stack(N), tmp_path / "a.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'ringproof\[load\]'"):
        runtime.load(on_meta(), path)


def test_no_tensor_is_copied_on_the_way(tmp_path: Path) -> None:
    """It is read where the file is mapped."""
    tensors = stack(N).state_dict()
    stored = open_checkpoint(save(tensors, tmp_path / "a.safetensors"))["scale"]
    assert as_bytes(stored.read()) == as_bytes(tensors["scale"])
    assert is_mapped(stored.read(), stored.file)


def test_transformers_loads_without_copying_too(tmp_path: Path) -> None:
    """Its own loader maps the files, if no dtype is converted; and a model that was built with
    real buffers is loaded right by ours."""
    transformers = pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    config = transformers.Qwen3Config(
        num_hidden_layers=3,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=64,
        tie_word_embeddings=True,
        **sizes,
    )
    transformers.Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert all(is_mapped(p, tmp_path / "model.safetensors") for p in plain.parameters())
    with accelerate.init_empty_weights():
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    refused(model, tmp_path, r"missing .* lm_head\.weight\n.*: model\.tie_weights\(\) before")
    model.tie_weights()
    tokens = torch.arange(1, 6).view(1, 5)
    expected = plain.generate(tokens, max_new_tokens=5, do_sample=False)
    with runtime.load(model, tmp_path, slots=2):
        assert torch.equal(model.generate(tokens, max_new_tokens=5, do_sample=False), expected)
        with torch.no_grad():
            assert torch.equal(model(tokens).logits, plain(tokens).logits)
        assert model.lm_head.weight is model.model.embed_tokens.weight


def is_mapped(tensor: torch.Tensor, file: Path) -> bool:
    """Whether the tensor's bytes are a mapping of that file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= tensor.data_ptr() < end:
            return line.endswith(str(file))
    return False
