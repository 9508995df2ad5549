"""Which modules are offloaded: found in the model, or given; and what can't be, said by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from runtime.layout import goes, hangs
from runtime.refuse import refuse
from schedule.errors import OffloadError


@dataclass(frozen=True, slots=True)
class Selection:
    """root: the whole model, or None for a bare list. modules, names: in execution order.
    stay: the parameters, by id, that hang in more than one place and are therefore not
    offloaded; ``stay_names`` says which."""

    root: nn.Module | None
    modules: tuple[nn.Module, ...]
    names: tuple[str, ...]
    stay: frozenset[int]
    stay_names: tuple[str, ...]


def select(model: nn.Module | Iterable[nn.Module], layers: Iterable[nn.Module] | None) -> Selection:
    """The modules to offload. OffloadError says what is wrong; nothing is changed."""
    if isinstance(model, nn.Module) and not isinstance(model, nn.ModuleList):
        refuse(model)
        root = model
        if layers is not None and not isinstance(layers, Iterable):
            raise OffloadError(f"layers is a {type(layers).__name__}; give a list of modules")
        chosen = list(_find(root) if layers is None else layers)
    else:
        if layers is not None:
            raise OffloadError("layers goes with a model; a list of modules is all of its layers")
        if isinstance(model, str | bytes) or not isinstance(model, Iterable):
            raise OffloadError(f"model is a {type(model).__name__}; give an nn.Module or a list")
        root, chosen = None, list(model)
        refuse(chosen)
    _refuse_odd(chosen)
    names = _names(root, chosen)
    stay = _shared(root, chosen, names)
    for module, name in zip(chosen, names, strict=True):
        if all(id(parameter) in stay for parameter in module.parameters()):
            what = "only parameters shared with other modules" if stay else "no parameters"
            raise OffloadError(
                f"module {name} has {what}, so nothing can be offloaded; leave it out"
            )
    return Selection(root, tuple(chosen), tuple(names), frozenset(stay), tuple(stay.values()))


def require_values(selection: Selection) -> None:
    """OffloadError names a tensor that is on the meta device."""
    tensors = {full: tensors[name] for tensors, name, full in tensors_that_stay(selection)}
    for module, name in zip(selection.modules, selection.names, strict=True):
        tensors.update((f"{name}.{path}", tensor) for path, _, _, tensor in hangs(module))
    for name, tensor in tensors.items():
        if tensor.is_meta:
            raise OffloadError(
                f"{name}, of shape {tuple(tensor.shape)}, is on the meta device and has no values; "
                f"load its checkpoint while offloading: runtime.load(model, checkpoint)"
            )


def renewed(selection: Selection) -> Selection:
    """The same modules, in a model whose tensors are others by now. OffloadError if one of the
    modules is no part of the model any more."""
    chosen = list(selection.modules)
    names = _names(selection.root, chosen)
    stay = _shared(selection.root, chosen, names)
    return replace(selection, stay=frozenset(stay), stay_names=tuple(stay.values()))


def _find(root: nn.Module) -> Iterable[nn.Module]:
    """The layers of a model: by its own word on what is a block, else its largest list."""
    for attribute in ("_no_split_modules", "_repeated_blocks"):
        kinds = set(getattr(root, attribute, None) or ())
        found = list(_outermost(root, kinds))
        if found:
            return found
    for container in (nn.ModuleList, nn.Sequential):
        lists = [m for m in root.modules() if isinstance(m, container) and _size(m)]
        if lists:
            return [child for child in max(lists, key=_size) if _size(child)]
    raise OffloadError(
        f"no layers were found in {type(root).__name__}: it has no _no_split_modules, no "
        f"_repeated_blocks and no ModuleList with parameters; pass layers=[...], in execution order"
    )


def _outermost(module: nn.Module, kinds: set[str]) -> Iterable[nn.Module]:
    for child in module.children():
        if type(child).__name__ in kinds and _size(child):
            yield child
        else:
            yield from _outermost(child, kinds)


def _size(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module.parameters() if not _lazy(p))


def _lazy(parameter: nn.Parameter) -> bool:
    return isinstance(parameter, nn.parameter.UninitializedTensorMixin)


def _refuse_odd(chosen: list[nn.Module]) -> None:
    if not chosen:
        raise OffloadError("there is no module to offload: the list of layers is empty")
    for position, module in enumerate(chosen):
        if not isinstance(module, nn.Module):
            raise OffloadError(f"layers[{position}] is a {type(module).__name__}, not an nn.Module")
        if isinstance(module, torch.jit.ScriptModule):
            raise OffloadError(
                f"layers[{position}], a {type(module).__name__}, is scripted, and its weights are "
                f"out of Python's reach; offload the module that it was made from"
            )
        if type(module).forward is nn.Module.forward:
            raise OffloadError(
                f"layers[{position}], a {type(module).__name__}, has no forward and so never runs; "
                f"give the modules in it"
            )
        for name, parameter in module.named_parameters():
            if _lazy(parameter):
                raise OffloadError(
                    f"layers[{position}].{name} is not initialized; run the model once before"
                )
    inside = Counter(id(inner) for module in chosen for inner in module.modules())
    for position, module in enumerate(chosen):
        if inside[id(module)] > 1:
            twice = sum(other is module for other in chosen) > 1
            what = "is listed twice" if twice else "lies inside another module of the list"
            raise OffloadError(
                f"layers[{position}], a {type(module).__name__}, {what}; a module that runs "
                f"several times in a pass is listed once"
            )


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
    modules, shared ones, and small buffers. As (dictionary, key, full name)."""
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
