"""How one says what is offloaded: names of modules, groups of layers, names of parameters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from runtime.find import has_weights, overview, runs
from schedule.arithmetic import is_in_group
from schedule.errors import OffloadError
from schedule.sizes import whole


def patterns(field: str, given: object) -> tuple[str, ...]:
    """A pattern or a list of them. OffloadError names the field if it is neither."""
    several = (given,) if isinstance(given, str) else given
    if not isinstance(several, Iterable):
        raise OffloadError(f"{field} is a {type(given).__name__}; give a name pattern or a list")
    several = tuple(several)
    for one in several:
        if not isinstance(one, str):
            raise OffloadError(f"{field} has a {type(one).__name__}; give name patterns")
    return several


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


# ---- layers


def resolve(root: nn.Module, layers: Iterable[object]) -> list[object]:
    """The layers with each name pattern replaced by the modules that it matches, which are not
    in the list already. OffloadError for a pattern that matches none that has weights."""
    chosen: list[object] = []
    for given in layers:
        if isinstance(given, str):
            found = list(dict.fromkeys(_matches(root, given, "")))
            if not found:
                raise OffloadError(_no_module(root, given))
            have = set(map(id, chosen))
            chosen += [module for module in found if id(module) not in have]
        else:
            chosen.append(given)
    return chosen


def _matches(module: nn.Module, pattern: str, prefix: str) -> Iterable[nn.Module]:
    """Of matching modules inside one another, the outermost; of a container, its members."""
    for name, child in module.named_children():
        if _fits(prefix + name, pattern):
            yield from _that_run(child)
        else:
            yield from _matches(child, pattern, f"{prefix}{name}.")


def _that_run(module: nn.Module) -> Iterable[nn.Module]:
    if not runs(module):
        for child in module.children():
            yield from _that_run(child)
    elif has_weights(module):
        yield module


def _no_module(root: nn.Module, pattern: str) -> str:
    names = [name for name, module in root.named_modules() if name and has_weights(module)]
    lists = {f"{name.rpartition('.')[0]}.*" for name in names if name.rpartition(".")[0]}
    return (
        f"layers={pattern!r} matches no module of {type(root).__name__} that has weights"
        f"{_nearest(pattern, [*names, *sorted(lists)])}; {overview(root)}"
    )


def _nearest(wanted: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(wanted, names, n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


# ---- groups, and what stays


def grouped(count: int, group_size: int | None, num_in_group: int | None) -> list[int]:
    """Of so many layers those that are the last ``num_in_group`` of their ``group_size``, all of
    them without one. OffloadError for what is no group, and where none is taken."""
    if group_size is None:
        if num_in_group is not None:
            raise OffloadError("num_in_group goes with group_size; give both")
        return list(range(count))
    group_size = _number("group_size", group_size)
    inside = _number("num_in_group", 1 if num_in_group is None else num_in_group)
    if inside > group_size:
        raise OffloadError(f"num_in_group is {inside}, but group_size is only {group_size}")
    taken = [i for i in range(count) if is_in_group(i, group_size, inside)]
    if not taken:
        raise OffloadError(
            f"group_size={group_size} with num_in_group={inside} takes none of {count} layers: the "
            f"first would be number {group_size - inside}, counted from 0; make the groups smaller"
        )
    return taken


def _number(field: str, value: object) -> int:
    number = whole(value)
    if number is None or number < 1:
        raise OffloadError(f"{field} must be an integer >= 1, got {value!r}")
    return number


def without(names: Sequence[str], modules: Sequence[nn.Module], keep: object) -> list[int]:
    """The positions of the layers that are not kept. OffloadError if an entry of ``keep``, a
    module or a name pattern, is none of them, or if nothing is left."""
    one = isinstance(keep, str) or (isinstance(keep, nn.Module) and runs(keep))
    entries = (keep,) if one else keep.values() if isinstance(keep, nn.ModuleDict) else keep
    if not isinstance(entries, Iterable):
        raise OffloadError(f"keep is a {type(keep).__name__}; give modules or name patterns")
    kept: set[int] = set()
    for entry in entries:
        if not isinstance(entry, str | nn.Module):
            raise OffloadError(f"keep has a {type(entry).__name__}; give modules or name patterns")
        found = [
            position
            for position, (name, module) in enumerate(zip(names, modules, strict=True))
            if (_fits(name, entry) if isinstance(entry, str) else entry is module)
        ]
        if not found:
            raise OffloadError(_no_layer(entry, names))
        kept.update(found)
    left = [position for position in range(len(names)) if position not in kept]
    if names and not left:
        raise OffloadError(f"keep has all {len(names)} layers, so nothing would be offloaded")
    return left


def _no_layer(entry: str | nn.Module, names: Sequence[str]) -> str:
    what, near = f"keep has a {type(entry).__name__} that is", ""
    if isinstance(entry, str):
        what, near = f"keep={entry!r} matches", _nearest(entry, names)
    some = ", ".join(names if len(names) <= 8 else (*names[:4], "...", *names[-3:]))
    return f"{what} none of the {len(names)} layers{near}; they are {some}"


# ---- parameters


def matching(names: Iterable[str], filters: Sequence[str]) -> set[str]:
    """The names that have one of the filters among their dotted segments: "experts" and
    "experts.w2" are in "mlp.experts.w2", "expert" and "w" are not; but "w*" is. Without the
    wildcards it is vLLM's ``offload_params``."""
    return {name for name in names if any(fnmatchcase(f".{name}.", f"*.{f}.*") for f in filters)}


def filtered_out(
    names: Sequence[str], modules: Sequence[nn.Module], filters: Sequence[str]
) -> frozenset[int]:
    """The ids of the parameters and buffers that a filter keeps on the device: those that match
    none of the patterns, which apply to names inside each module. OffloadError names the modules
    in which nothing matches, and what is in them."""
    stay: set[int] = set()
    empty: dict[str, str] = {}
    for name, module in zip(names, modules, strict=True):
        tensors: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
        tensors.update(module.named_buffers(remove_duplicate=False))
        taken = {id(tensors[path]) for path in matching(tensors, filters)}
        stay |= {id(tensor) for tensor in tensors.values()} - taken
        if not taken:
            # Of hundreds of experts one line: their numbers become wildcards.
            empty[name] = ", ".join(dict.fromkeys(re.sub(r"\.\d+\.", ".*.", t) for t in tensors))
    if empty or not filters:
        raise OffloadError(_no_parameter(filters, empty, len(names)))
    return frozenset(stay)


def _no_parameter(filters: Sequence[str], empty: dict[str, str], modules: int) -> str:
    if not filters:
        return "parameters is an empty list, which matches nothing; leave it out to offload all"
    name, inside = next(iter(empty.items()))
    text = f"parameters={list(filters)} matches nothing in {name}, which has {inside}"
    if len(empty) < modules:
        text += f"; keep={list(empty)} leaves the modules without a match on the device"
    return text
