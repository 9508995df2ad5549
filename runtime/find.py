"""The blocks of a model: by its own word on what is one, else its largest list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

import torch
from torch import nn

from runtime.layout import goes
from runtime.sizes import megabytes
from schedule.errors import OffloadError

WORDS = ("_no_split_modules", "_repeated_blocks")
"""Attributes by which transformers and diffusers name the classes of a model's blocks."""


def find(root: nn.Module) -> list[nn.Module]:
    """The blocks, outermost, in the order in which they hang. OffloadError if there are none.

    A single block that is more than half of the model saves nothing, since it needs a slot of its
    size: what else has half of its bytes is taken instead.
    """
    fallback: list[nn.Module] = []
    for found in filter(None, _candidates(root)):
        several = len(found) > 1 or 2 * size(found[0]) <= size(root)
        if several and 2 * sum(map(size, found)) >= sum(map(size, fallback)):
            return found
        fallback = fallback or found
    if fallback:
        return fallback
    raise OffloadError(
        f"no layers were found in {type(root).__name__}: it has no _no_split_modules, no "
        f"_repeated_blocks and no ModuleList or ModuleDict of blocks; pass layers=[...], in "
        f"execution order"
    )


def _candidates(root: nn.Module) -> Iterator[list[nn.Module]]:
    for word in WORDS:
        yield _of_kinds(root, _kinds(root, word))
    boxes = [module for module in root.modules() if _has_blocks(module, root)]
    for one in sorted(boxes, key=size, reverse=True):
        yield _with_weights(one)
    rows = [module for module in root.modules() if isinstance(module, nn.Sequential)]
    found = [_with_weights(one) for one in sorted(rows, key=size, reverse=True)]
    # Several rows with a single member each are the insides of blocks, which were not found.
    lone = sum(len(inside) == 1 for inside in found)
    yield from (inside for inside in found if len(inside) > 1 or lone == 1)


def _with_weights(box: nn.Module) -> list[nn.Module]:
    return [child for child in box.children() if has_weights(child)]


def _has_blocks(module: nn.Module, root: nn.Module) -> bool:
    """Whether it is a ModuleList, or a ModuleDict inside the model whose modules are of one kind:
    of several kinds they are rather the parts of a model, by name."""
    if isinstance(module, nn.ModuleDict):
        inside = _with_weights(module)
        alike = len({type(child) for child in inside}) == 1
        return module is not root and alike and all(map(runs, inside))
    return isinstance(module, nn.ModuleList)


def _kinds(root: nn.Module, word: str) -> set[str]:
    """The classes of blocks that the model names, or a model inside it."""
    kinds: set[str] = set()
    for part in root.modules():
        said = getattr(part, word, None)
        kinds.update([said] if isinstance(said, str) else said if _is_list(said) else ())
    # An embedding must not be split either, but is no block.
    return {kind for kind in kinds if "Embed" not in kind}


def _is_list(said: object) -> bool:
    return isinstance(said, list | tuple | set | frozenset)


def _of_kinds(root: nn.Module, kinds: set[str]) -> list[nn.Module]:
    """The modules of these kinds that are repeated: there are several of the kind, or a
    ModuleList has them. Where the kind is a part of a list's member, an attention say, the
    member is the block."""
    boxes = [module for module in root.modules() if _has_blocks(module, root)]
    in_list = {id(member): member for box in boxes for member in box.children()}
    number = Counter(type(module).__name__ for module in root.modules())
    blocks: dict[int, nn.Module] = {}
    for module, member in _walk(root, in_list, None):
        kind = type(module).__name__
        repeated = member is not None or number[kind] > 1
        if kind in kinds and repeated and runs(module) and has_weights(module):
            block = module if member is None else member
            blocks[id(block)] = block
    return list(_outermost(root, blocks))


def _walk(
    module: nn.Module, in_list: dict[int, nn.Module], member: nn.Module | None
) -> Iterator[tuple[nn.Module, nn.Module | None]]:
    """All modules below, each with the innermost member of a ModuleList that it is or lies in."""
    for child in module.children():
        inner = in_list.get(id(child), member)
        yield child, inner
        yield from _walk(child, in_list, inner)


def _outermost(module: nn.Module, blocks: dict[int, nn.Module]) -> Iterator[nn.Module]:
    """The blocks that lie in no other one, each once."""
    for child in module.children():
        if id(child) in blocks:
            yield blocks.pop(id(child))
        else:
            yield from _outermost(child, blocks)


def size(module: nn.Module) -> int:
    """The bytes of what of it is offloaded, as far as they are known: its parameters, and the
    buffers in which quantised layers keep their weights."""
    return sum(_bytes(tensor) for tensor in _known(module) if goes(tensor))


def _known(module: nn.Module) -> Iterator[torch.Tensor]:
    tensors = chain(module.parameters(), module.buffers())
    return (tensor for tensor in tensors if not is_lazy(tensor))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether its shape is not known before the first run."""
    return isinstance(tensor, nn.parameter.UninitializedTensorMixin)


def has_weights(module: nn.Module) -> bool:
    """Whether there is anything worth offloading, or will be once the shapes are known. Buffers
    alone are, if no more than half of their bytes would stay: not a counter beside statistics."""
    if any(is_lazy(one) or one.numel() for one in module.parameters()):
        return True
    taken = size(module)
    return taken > 0 and 2 * taken >= sum(map(_bytes, _known(module)))


def runs(module: nn.Module) -> bool:
    """Whether it has a forward: containers have none."""
    # What is scripted has one that can't be read off its class.
    return getattr(type(module), "forward", None) is not nn.Module.forward


def overview(root: nn.Module, most: int = 6) -> str:
    """What can be chosen from, the largest first: patterns, and what each one matches."""
    lists = {
        f"{name}.*" if name else "*": list(module.children())
        for name, module in root.named_modules()
        if isinstance(module, nn.Sequential) or _has_blocks(module, root)
        if has_weights(module)
    }
    weights = {pattern: sum(map(size, members)) for pattern, members in lists.items()}
    largest = sorted(lists, key=lambda pattern: -weights[pattern])[:most]
    if not largest:
        return "it has no lists of modules"
    return "it has " + ", ".join(
        f"{pattern!r} ({_members(lists[pattern])}, {megabytes(weights[pattern])})"
        for pattern in largest
    )


def _members(modules: Iterable[nn.Module]) -> str:
    kinds = Counter(type(module).__name__ for module in modules)
    return " + ".join(f"{number} x {kind}" for kind, number in kinds.items())
