"""Which modules are offloaded: found in the model, or given; and what can't be, said by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from runtime.find import find, has_weights, is_lazy, runs, size
from runtime.layout import goes, hangs
from runtime.refuse import refuse
from runtime.selectors import filtered_out, grouped, patterns, resolve, without
from runtime.sizes import megabytes
from schedule.errors import OffloadError

Layers = str | Iterable[nn.Module | str] | None


@dataclass(frozen=True, slots=True)
class Selection:
    """root: the whole model, or None for a bare list. modules, names: in execution order.
    stay: the parameters and buffers, by id, that are not offloaded: those that hang in more than
    one place, of which ``stay_names`` says the names; and those that match none of ``filters``,
    the name patterns that the user gave, if any; and ``kept``, by full name, as a plan has it.
    found: whether the modules were found, and are in the order in which they hang, which may not
    be that in which they run."""

    root: nn.Module | None
    modules: tuple[nn.Module, ...]
    names: tuple[str, ...]
    stay: frozenset[int]
    stay_names: tuple[str, ...]
    filters: tuple[str, ...] = ()
    found: bool = False
    kept: frozenset[str] = frozenset()


def select(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers = None,
    *,
    group_size: int | None = None,
    num_in_group: int | None = None,
    keep: Layers = None,
    parameters: str | Iterable[str] | None = None,
) -> Selection:
    """The modules to offload, as ``offload`` says. OffloadError says what is wrong; nothing is
    changed."""
    root, listed = _listed(model, layers)
    word = "modules" if root is None else "layers"
    _refuse_list(listed, word)
    every = _names(root, listed)
    left = set(range(len(listed)) if keep is None else without(every, listed, keep))
    taken = [i for i in grouped(len(listed), group_size, num_in_group) if i in left]
    if not taken:
        raise OffloadError("keep has all layers that group_size takes, so nothing is offloaded")
    chosen, names = [listed[i] for i in taken], [every[i] for i in taken]
    for position, module in zip(taken, chosen, strict=True):
        _refuse_odd(f"{word}[{position}]", module)
    filters = () if parameters is None else patterns("parameters", parameters)
    unmatched = frozenset() if parameters is None else filtered_out(names, chosen, filters)
    shared = _shared(root, chosen, names)
    for module, name in zip(chosen, names, strict=True):
        own = [tensor for _, _, _, tensor in hangs(module) if goes(tensor)]
        if all(id(tensor) in {*unmatched, *shared} for tensor in own):
            what = "only parameters shared with other modules" if shared else "no parameters"
            raise OffloadError(
                f"module {name} has {what}, so nothing can be offloaded; leave it out"
            )
    stay, stay_names = unmatched | shared.keys(), tuple(shared.values())
    found = root is not None and layers is None
    return Selection(root, tuple(chosen), tuple(names), stay, stay_names, filters, found)


def reordered(selection: Selection, order: Iterable[int]) -> Selection:
    """The same modules, those of these positions one after the other."""
    modules, names = zip(*((selection.modules[i], selection.names[i]) for i in order), strict=True)
    return replace(selection, modules=modules, names=names)


def keeping(selection: Selection, kept: Iterable[str]) -> Selection:
    """The same modules, in this order for good, of which these parameters and buffers, by full
    name, stay on the device too."""
    names = frozenset(kept)
    stay = selection.stay | _named(selection.modules, selection.names, names)
    return replace(selection, stay=stay, kept=names, found=False)


def _named(
    modules: Iterable[nn.Module], names: Iterable[str], wanted: frozenset[str]
) -> frozenset[int]:
    """The ids of the tensors in these modules that have such a full name."""
    return frozenset(
        id(tensor)
        for module, name in zip(modules, names, strict=True)
        for path, _, _, tensor in hangs(module)
        if f"{name}.{path}" in wanted
    )


def require_values(selection: Selection) -> None:
    """OffloadError names a tensor that is on the meta device."""
    for name, tensor in _tensors(selection).items():
        if tensor.is_meta:
            raise OffloadError(
                f"{name}, of shape {tuple(tensor.shape)}, is on the meta device and has no values; "
                f"load its checkpoint while offloading: runtime.load(model, checkpoint)"
            )


def device_of(selection: Selection) -> torch.device | None:
    """The accelerator that tensors are on already, if any is. OffloadError if that is more than
    one: an offload has one device, and the user must say which."""
    found: dict[torch.device, str] = {}
    for name, tensor in _tensors(selection).items():
        if tensor.device.type not in ("cpu", "meta"):
            found.setdefault(tensor.device, name)
    if len(found) > 1:
        (first, name), (second, other), *_ = found.items()
        raise OffloadError(
            f"{name} is on {first} and {other} on {second}, but the slots of an offload are on one "
            f"device: offload the part on each device by itself, as a list of its modules, or pass "
            f"device='{first}' to run everything there"
        )
    return next(iter(found), None)


def _tensors(selection: Selection) -> dict[str, torch.Tensor]:
    """All there are in the model, or in the list of modules, by full name."""
    tensors = {full: tensors[name] for tensors, name, full in tensors_that_stay(selection)}
    for module, name in zip(selection.modules, selection.names, strict=True):
        tensors.update((f"{name}.{path}", tensor) for path, _, _, tensor in hangs(module))
    return tensors


def renewed(selection: Selection) -> Selection:
    """The same modules, in a model whose tensors are others by now. OffloadError if one of the
    modules is no part of the model any more."""
    root, chosen, names = selection.root, list(selection.modules), list(selection.names)
    there = {id(module) for module in (() if root is None else root.modules())}
    for module, name in zip(chosen, names, strict=True):
        if root is not None and id(module) not in there:
            raise OffloadError(
                f"{name}, a {type(module).__name__}, is no part of the model any more; close() and "
                f"offload it again"
            )
    filters = selection.filters
    unmatched = filtered_out(names, chosen, filters) if filters else frozenset()
    shared = _shared(root, chosen, names)
    stay = unmatched | shared.keys() | _named(chosen, names, selection.kept)
    return replace(selection, stay=stay, stay_names=tuple(shared.values()))


def _listed(
    model: nn.Module | Iterable[nn.Module], layers: Layers
) -> tuple[nn.Module | None, list[Any]]:
    """The root, if there is one, and the layers that were given or found."""
    if isinstance(model, nn.Module) and not isinstance(model, nn.ModuleList):
        refuse(model)
        _refuse_scripted("the model", model)
        return model, find(model) if layers is None else resolve(model, _given(layers))
    if layers is not None:
        raise OffloadError("layers goes with a model; a list of modules is all of its layers")
    if isinstance(model, str | bytes | Mapping) or not isinstance(model, Iterable):
        raise OffloadError(
            f"model is a {type(model).__name__}; give an nn.Module or a list{_its_parts(model)}"
        )
    listed = list(model)
    refuse(listed)
    return None, listed


def _given(layers: object) -> Iterable[object]:
    """The entries of what was given as layers."""
    if isinstance(layers, str):
        return [layers]
    if isinstance(layers, nn.ModuleDict):
        return layers.values()
    kind = type(layers).__name__
    if isinstance(layers, nn.Module) and not isinstance(layers, nn.ModuleList):
        raise OffloadError(
            f"layers is a {kind}, one module: give layers=[it] for one layer, or "
            f"layers=list(it) for its members"
        )
    if isinstance(layers, Mapping) or not isinstance(layers, Iterable):
        raise OffloadError(f"layers is a {kind}; give a list of modules or name patterns")
    return layers


def _its_parts(model: object, most: int = 4) -> str:
    """Of what is no module, a pipeline for instance, the attributes that are, the largest first."""
    held = getattr(model, "__dict__", {}).items()
    parts = {name: part for name, part in held if isinstance(part, nn.Module) and has_weights(part)}
    largest = sorted(parts, key=lambda name: -size(parts[name]))[:most]
    if not largest:
        return ""
    return ", of a pipeline one of its parts: " + ", ".join(
        f".{name} (a {type(parts[name]).__name__}, {megabytes(size(parts[name]))})"
        for name in largest
    )


def _refuse_list(listed: list[Any], word: str) -> None:
    """OffloadError if it is empty, or has what is no module, or a module twice; ``word`` is the
    list's name."""
    if not listed:
        raise OffloadError(f"there is no module to offload: the list of {word} is empty")
    for position, module in enumerate(listed):
        if not isinstance(module, nn.Module):
            raise OffloadError(f"{word}[{position}] is a {type(module).__name__}, not an nn.Module")
    inside = Counter(id(inner) for module in listed for inner in module.modules())
    for position, module in enumerate(listed):
        if inside[id(module)] > 1:
            twice = sum(other is module for other in listed) > 1
            what = "is listed twice" if twice else "lies inside another module of the list"
            raise OffloadError(
                f"{word}[{position}], a {type(module).__name__}, {what}; a module that runs "
                f"several times in a pass is listed once"
            )


def _refuse_scripted(what: str, module: nn.Module) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise OffloadError(
            f"{what}, a {type(module).__name__}, is scripted, and its weights are "
            f"out of Python's reach; offload the module that it was made from"
        )


def _refuse_odd(what: str, module: nn.Module) -> None:
    _refuse_scripted(what, module)
    if hasattr(module, "_orig_mod"):
        raise OffloadError(
            f"{what}, a {type(module).__name__}, is compiled around the module that has the "
            f"weights; compile layers in place, layer.compile(), which keeps them what they are"
        )
    if not runs(module):
        raise OffloadError(
            f"{what}, a {type(module).__name__}, has no forward and so never runs; "
            f"give the modules in it"
        )
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(tensor):
            raise OffloadError(f"{what}.{name} is not initialized; run the model once before")


def _names(root: nn.Module | None, chosen: list[nn.Module]) -> list[str]:
    if root is None:
        return [f"modules[{position}]" for position in range(len(chosen))]
    known = {id(module): name for name, module in root.named_modules()}
    for position, module in enumerate(chosen):
        if id(module) not in known:
            raise OffloadError(
                f"layers[{position}], a {type(module).__name__}, is no part of the model"
            )
        if module is root:
            raise OffloadError("the model itself can't be one of its layers; give its parts")
    return [known[id(module)] for module in chosen]


def _shared(root: nn.Module | None, chosen: list[nn.Module], names: list[str]) -> dict[int, str]:
    """Tensors, by id, that more than one chosen module holds, or the rest of the model too."""
    holders = Counter(tensor for module in chosen for tensor in {id(h[3]) for h in hangs(module)})
    if root is not None:
        inside = {id(inner) for module in chosen for inner in module.modules()}
        beside = (module for module in root.modules() if id(module) not in inside)
        holders.update({id(one) for module in beside for one in _own(module)})
    return {
        id(tensor): f"{name}.{path}"
        for module, name in zip(chosen, names, strict=True)
        for path, _, _, tensor in hangs(module)
        if holders[id(tensor)] > 1
    }


def _own(module: nn.Module) -> Iterable[torch.Tensor]:
    tensors = [*module._parameters.values(), *module._buffers.values()]
    return (tensor for tensor in tensors if tensor is not None)


def tensors_that_stay(selection: Selection) -> Iterable[tuple[dict[str, torch.Tensor], str, str]]:
    """Where each tensor hangs that belongs on the device for good: those outside the offloaded
    modules, small buffers, and what the selection says. As (dictionary, key, full name)."""
    inside = {id(inner) for module in selection.modules for inner in module.modules()}
    scope = [("", selection.root)]
    if selection.root is None:
        scope = list(zip(selection.names, selection.modules, strict=True))
    for prefix, part in [pair for name, one in scope for pair in one.named_modules(prefix=name)]:
        for table in part._parameters, part._buffers:
            for name, tensor in table.items():
                within = id(part) in inside and id(tensor) not in selection.stay
                if tensor is not None and not (within and goes(tensor)):
                    yield table, name, f"{prefix}.{name}" if prefix else name
