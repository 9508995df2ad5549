"""A checkpoint in safetensors files, read without loading it: which tensors, where, how large.

The files are mapped into memory, so a tensor's bytes are read from the file when it is copied,
and take no memory of the process's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from schedule.errors import OffloadError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
CODES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.float8_e8m0fnu: "F8_E8M0",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.complex64: "C64",
}
"""What safetensors calls each dtype."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file, which ``opened`` holds open. dtype: as safetensors calls it."""

    name: str
    file: Path
    shape: tuple[int, ...]
    dtype: str
    opened: Any

    def read(self) -> torch.Tensor:
        """The tensor, over the mapped file. OffloadError if the file can't be read."""
        try:
            tensor: torch.Tensor = self.opened.get_tensor(self.name)
        except Exception as error:
            raise OffloadError(f"reading {self.name} from {self.file} failed: {error}") from error
        return tensor


Checkpoint = dict[str, Stored]


def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """The tensors of a checkpoint, by name.

    path: a safetensors file, the index of a sharded one, or a folder with either.
    OffloadError says what is wrong with it.
    """
    if not isinstance(path, str | PathLike):
        raise OffloadError(
            f"checkpoint is a {type(path).__name__}; give the path of a file or folder"
        )
    at = Path(path)
    if not at.exists():
        raise OffloadError(
            f"there is no checkpoint at {at}; give a local file or folder (of a model on a hub: "
            f"the folder that it was downloaded to)"
        )
    if at.is_dir():
        at = _in_folder(at)
    if at.suffix == ".json":
        return _sharded(at)
    if at.suffix in PICKLES:
        raise OffloadError(
            f"{at} is a pickle, which runs code when it is loaded and can't be streamed; convert "
            f"it: safetensors.torch.save_file(torch.load({at.name!r}, weights_only=True), "
            f"{SINGLE!r})"
        )
    if at.suffix != ".safetensors":
        raise OffloadError(
            f"{at} is no checkpoint that can be streamed; give a file *.safetensors, an index "
            f"*.safetensors.index.json, or a folder with one"
        )
    return {stored.name: stored for stored in _file(at)}


def _in_folder(folder: Path) -> Path:
    """The one checkpoint in a folder."""
    indexes = sorted(folder.glob("*.safetensors.index.json"))
    files = sorted(folder.glob("*.safetensors"))
    usual = [path for path in (*indexes, *files) if path.name in (INDEX, SINGLE)]
    for found in usual, indexes, files:
        if len(found) == 1:
            return found[0]
        if found:
            raise OffloadError(
                f"folder {folder} has several checkpoints: {', '.join(p.name for p in found)}; "
                f"give the path of one of them"
            )
    pickles = sorted(path for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        return pickles[0]  # which is refused, with what to do
    raise OffloadError(f"folder {folder} has no file *.safetensors and no index of such files")


def _sharded(index: Path) -> Checkpoint:
    """The tensors of all shards that an index names. What it promises must be there, once."""
    try:
        shards: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        names = sorted(set(shards.values()), key=str)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise OffloadError(
            f"{index} is no index of a sharded checkpoint, which is JSON with a table "
            f"'weight_map' from tensors to files: {type(error).__name__}: {error}"
        ) from error
    for name in names:
        if not isinstance(name, str):
            raise OffloadError(f"{index} names the shard {name!r}, which is no text")
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise OffloadError(f"{index} names the shard {name!r}, no safetensors file beside it")
    missing = [name for name in names if not (index.parent / name).exists()]
    if missing:
        raise OffloadError(
            f"{index} names {len(names)} shards, of which {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing; download the rest of the checkpoint"
        )
    checkpoint: Checkpoint = {}
    for name in names:
        for stored in _file(index.parent / name):
            twin = checkpoint.setdefault(stored.name, stored)
            if twin is not stored:
                raise OffloadError(
                    f"tensor {stored.name} is both in {twin.file} and in {stored.file}; which is "
                    f"meant can't be known: remove the shard that is not of this checkpoint"
                )
    for tensor, name in shards.items():
        if tensor not in checkpoint or checkpoint[tensor].file.name != name:
            raise OffloadError(
                f"{index} says that tensor {tensor} is in {name}, but it is not; the shards and "
                f"the index are not of one checkpoint: download it anew"
            )
    return checkpoint


def _file(path: Path) -> Iterable[Stored]:
    """The tensors of one file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(
            "runtime.load reads checkpoints with safetensors: pip install 'ringproof[load]'"
        ) from error
    try:
        opened = safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise OffloadError(_unread(path, error)) from error
    for name in opened.keys():  # noqa: SIM118, it is no dictionary
        part = opened.get_slice(name)
        yield Stored(name, path, tuple(part.get_shape()), part.get_dtype(), opened)


def _unread(path: Path, error: Exception) -> str:
    """Why a file can't be opened, and what to do."""
    try:
        with path.open("rb") as file:
            pointer = file.read(40).startswith(b"version https://git-lfs")
    except OSError as reason:
        return f"{path} can't be read ({reason.strerror or reason}); give a file that can"
    remedy = "it is a pointer of Git LFS: run git lfs pull" if pointer else "download it anew"
    return f"{path} is corrupt or cut off ({error}); {remedy}"
