"""A checkpoint that does not fit, or is none, is one error that says what to do; the model is as
before, and nothing was allocated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.checkpoint import INDEX, SINGLE
from schedule import OffloadError
from tests.runtime.checkpoints import N, Tied, on_meta, refused, save, save_sharded, skeleton
from tests.runtime.models import WIDTH, Block, batches, outputs, same, stack

INPUTS = batches(2)


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name in names:
            del tensors[name]

    return change


def renamed(to: Callable[[str], str]) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        for name in list(tensors):
            tensors[to(name)] = tensors.pop(name)

    return change


def everything_wrong(tensors: dict[str, Any]) -> None:
    del tensors["scale"]
    tensors["extra"] = torch.ones(1)
    tensors["head.bias"] = torch.ones(3)
    tensors["embed.bias"] = tensors["embed.bias"].half()


MISFITS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "missing": (
        without("scale", "layers.2.up.bias"),
        r"a.safetensors does not fit Stack:\n"
        r"  missing from the checkpoint \(2\): scale; layers\.2\.up\.bias$",
    ),
    "unexpected": (
        lambda tensors: tensors.update(extra=torch.ones(1)),
        r"unexpected in the checkpoint \(1\): extra$",
    ),
    "shape": (
        lambda tensors: tensors.update({"head.bias": torch.ones(3)}),
        r"of another shape \(1\): head\.bias, \(3,\) in the checkpoint, \(8,\) in the model$",
    ),
    "scalar": (
        lambda tensors: tensors.update(scale=torch.tensor(0.5)),
        r"of another shape \(1\): scale, \(\) in the checkpoint, \(8,\) in the model$",
    ),
    "dtype": (
        lambda tensors: tensors.update({k: v.bfloat16() for k, v in tensors.items()}),
        r"of another dtype \(25\): .*embed\.bias, BF16 in the checkpoint, torch\.float32 in the "
        r"model; .*; and 20 more\n.*: model\.to\(torch\.bfloat16\)$",
    ),
    "dtypes": (
        lambda tensors: tensors.update(scale=torch.ones(8).int()),
        r"I32 in the checkpoint, torch.float32 in the model\n  nothing .*, or convert the file$",
    ),
    "all at once": (
        everything_wrong,
        r"(?s)missing.*: scale\n.*unexpected.*: extra\n.*shape.*: head.bias.*dtype.*: embed.bias,",
    ),
    "a part's": (
        renamed(lambda name: f"model.{name}"),
        r"missing .*\(25\).* and 20 more\n  unexpected .*\n.* without the prefix 'model\.'",
    ),
    "other names": (
        renamed(lambda name: f"{name}_"),
        r"use its from_pretrained, then runtime\.off",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_listed_before_anything_is_allocated(
    name: str, tmp_path: Path
) -> None:
    change, message = MISFITS[name]
    tensors = dict(stack(N).state_dict())
    change(tensors)
    refused(on_meta(), save(tensors, tmp_path / "a.safetensors"), message)


def test_a_part_s_checkpoint_for_the_whole_is_told(tmp_path: Path) -> None:
    path = save(stack(3), tmp_path / "a.safetensors")
    refused(on_meta(Tied), path, r"with the prefix 'body\.': this is a checkpoint of model\.body$")


def test_values_that_no_checkpoint_has(tmp_path: Path) -> None:
    path = save(stack(N), tmp_path / "a.safetensors")
    model = on_meta()
    model.layers[3].register_buffer("angles", torch.ones(4, device="meta"), persistent=False)
    model.offset = torch.ones(2, device="meta")
    message = r"such tensors \(2\): offset; layers\.3\.angles\n.*accelerate\.init_empty_weights\(\)"
    refused(model, path, message)
    model.layers[3].angles, model.offset = torch.ones(4), torch.ones(2)
    with runtime.load(model, path):
        assert same(outputs(model, INPUTS), outputs(stack(N), INPUTS))


def test_a_model_that_has_values(tmp_path: Path) -> None:
    path, model = save(stack(N), tmp_path / "a.safetensors"), on_meta()
    model.head = nn.Linear(WIDTH, WIDTH)
    refused(model, path, r"not on the meta device, .* \(2\): head\.weight; head\.bias$")


@pytest.mark.parametrize("model", [[Block()], None])
def test_what_is_no_whole_model(model: Any, tmp_path: Path) -> None:
    with pytest.raises(OffloadError, match=r"model is a .*; give the whole model, an nn\.Module"):
        runtime.load(model, tmp_path)


def test_without_a_checkpoint_a_model_on_meta_is_refused() -> None:
    model = on_meta()
    before = skeleton(model)
    with pytest.raises(
        OffloadError, match=r"scale, of shape .* runtime\.load\(model, checkpoint\)"
    ):
        runtime.offload(model)
    assert skeleton(model) == before


# ---- files


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def lies(index: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(index.read_text(encoding="ascii"))
    change(data)
    index.write_text(json.dumps(data), encoding="ascii")


SHARD = "model-00002-of-00003.safetensors"

SHARDED: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off": (lambda f: cut(f / SHARD), f"{SHARD} is corrupt or cut off .*; download it anew"),
    "empty": (lambda f: (f / SHARD).write_bytes(b""), f"{SHARD} is corrupt or cut off .*header"),
    "a pointer": (
        lambda f: (f / SHARD).write_text("version https://git-lfs.github.com/spec/v1\n"),
        "Git LFS: run git lfs pull",
    ),
    "not there": (
        lambda f: (f / SHARD).unlink(),
        f"names 3 shards, of which {SHARD} is missing; download the rest",
    ),
    "a shard without a tensor": (
        lambda f: save({"scale_": torch.ones(1)}, f / SHARD),
        f"says that tensor .* is in {SHARD}, but it is not; .* not of one checkpoint",
    ),
    "a tensor in two shards": (
        lambda f: save(stack(N), f / SHARD),
        r"tensor .* is both in .*-00001-of-.* and in .*-00002-of-.*: remove the shard",
    ),
    "no JSON": (
        lambda f: (f / INDEX).write_text("{"),
        r"index\.json is no index of a sharded checkpoint, .*JSONDecodeError",
    ),
    "no map": (
        lambda f: lies(f / INDEX, lambda data: data.pop("weight_map")),
        "which is JSON with a table 'weight_map' .*KeyError",
    ),
    "a list for a map": (
        lambda f: lies(f / INDEX, lambda data: data.update(weight_map=["scale"])),
        "a table 'weight_map' from tensors to files: AttributeError",
    ),
    "a file elsewhere": (
        lambda f: lies(f / INDEX, lambda data: data["weight_map"].update(scale="../x.safetensors")),
        r"names the shard '\.\./x\.safetensors', no safetensors file beside it",
    ),
    "a pickled shard": (
        lambda f: lies(f / INDEX, lambda data: data["weight_map"].update(scale="x.bin")),
        r"names the shard 'x\.bin', no safetensors file",
    ),
    "two checkpoints": (
        lambda f: save(stack(N), f / SINGLE),
        rf"several checkpoints: {INDEX}, {SINGLE}; give the path of one",
    ),
}


@pytest.mark.parametrize("name", SHARDED)
def test_sharded_checkpoints_that_are_not_whole(name: str, tmp_path: Path) -> None:
    save_sharded(stack(N), tmp_path)
    change, message = SHARDED[name]
    change(tmp_path)
    refused(on_meta(), tmp_path, message)


PATHS = {
    "no_such": r"there is no checkpoint at .*no_such; give a local file or folder",
    "nothing": r"folder .*nothing has no file \*\.safetensors and no index",
    "pickled": r"pickled/model\.bin is a pickle, .* convert it: safetensors\.torch\.save_file\(",
    "pickled/model.bin": r"model\.bin is a pickle, .*torch\.load\('model\.bin', weights_only=T",
    "model.gguf": r"model\.gguf is no checkpoint that can be streamed; give a file \*\.safetensors",
    "two": r"folder .*two has several checkpoints: a\.safetensors, b\.safetensors; give",
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_are_no_checkpoint(path: str, tmp_path: Path) -> None:
    for folder in ("nothing", "pickled", "two"):
        (tmp_path / folder).mkdir()
    for file in ("pickled/model.bin", "model.gguf", "two/a.safetensors", "two/b.safetensors"):
        (tmp_path / file).touch()
    refused(on_meta(), tmp_path / path, PATHS[path])


def test_a_checkpoint_that_is_no_path() -> None:
    refused(on_meta(), {"scale": torch.ones(1)}, "checkpoint is a dict; give the path of a file")


def test_one_of_the_usual_name_is_taken_beside_others(tmp_path: Path) -> None:
    """As in repositories that hold the weights twice, in formats of their own."""
    save(stack(N), tmp_path / SINGLE)
    save(stack(3), tmp_path / "consolidated.safetensors")
    model = on_meta()
    with runtime.load(model, tmp_path):
        assert same(outputs(model, INPUTS), outputs(stack(N), INPUTS))


def test_a_shard_that_has_no_name(tmp_path: Path) -> None:
    index = save_sharded(stack(N), tmp_path)
    data = json.loads(index.read_text())
    data["weight_map"]["scale"] = 3
    index.write_text(json.dumps(data))
    refused(
        on_meta(), tmp_path, r"model\.safetensors\.index\.json names the shard 3, which is no text"
    )


def test_a_file_that_can_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_sharded(stack(N), tmp_path)
    shard = tmp_path / "model-00002-of-00003.safetensors"
    shard.unlink()
    shard.mkdir()
    refused(
        on_meta(), tmp_path, r"model-00002-of-00003\.safetensors can't be read \(Is a directory\)"
    )
    shard.rmdir()
    shard.write_bytes(b"")

    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)  # root may read everything
    refused(on_meta(), shard, r"00002-of-00003\.safetensors can't be read \(Permission denied\)")
