"""What people do with an offloaded model between its passes: save, load, move, copy, change it.

Saving shows the host masters, also while a module runs from its slot. Loading first waits for
copies that still read the masters, and adopts what it replaced. Moving, converting, copying and
pickling the model are refused before anything is done; a module or a Parameter that is registered
is noted, so that the next run does not overlook it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules import module as registration

from runtime.arena import Arena
from runtime.select import Selection
from schedule.errors import OffloadError


class Around:
    """The hooks on saving, loading, moving and registering of one offload.

    mend:  called before a state dict is made.      keep: called with a module that saves its
           slot's weights, to bring what it wrote into the masters.
    wait:  called before anything is loaded.        adopt: called with the modules (by index) that
           were loaded, or None for all and the rest of the model.
    """

    def __init__(
        self,
        selection: Selection,
        arena: Arena,
        *,
        mend: Callable[[], None],
        keep: Callable[[int], None],
        wait: Callable[[], None],
        adopt: Callable[[int | None], None],
    ) -> None:
        self._selection, self._arena = selection, arena
        self._mend, self._keep, self._wait, self._adopt = mend, keep, wait, adopt
        self._handles: list[Any] = []
        self._fixed: list[nn.Module] = []

    def register(self) -> None:
        """Put the hooks in; those that are there already are taken out first."""
        self.remove()
        parts: dict[int, int] = {}
        for index, module in enumerate(self._selection.modules):
            self._loads(module, index)
            for part in module.modules():
                parts[id(part)] = index
                self._handles.append(part.register_state_dict_pre_hook(lambda *_: self._mend()))
                saved = partial(self._saved, index)
                self._handles.append(part.register_state_dict_post_hook(saved))
                self._waits(part)
                self._fix(part)
        for module in self._above():
            self._waits(module)
            self._loads(module, None)
        # What lies beside them too: it would be converted, and the rest would not fit it.
        for module in () if self._selection.root is None else self._selection.root.modules():
            self._fix(module)
        self._watch(parts)

    def remove(self) -> None:
        """Take the hooks out."""
        for handle in self._handles:
            handle.remove()
        for module in self._fixed:
            for name in FIXED:
                vars(module).pop(name, None)
        self._handles.clear()
        self._fixed.clear()

    def _above(self) -> Iterator[nn.Module]:
        """The modules that an offloaded one lies in."""
        root, chosen = self._selection.root, {id(module) for module in self._selection.modules}
        for module in [] if root is None else root.modules():
            inner = {id(part) for part in module.modules()}
            if id(module) not in chosen and inner & chosen:
                yield module

    def _fix(self, module: nn.Module) -> None:
        vars(module).update(FIXED)
        self._fixed.append(module)

    def _waits(self, module: nn.Module) -> None:
        """Before it is loaded, copies that still read what is there have landed."""
        before = module.register_load_state_dict_pre_hook(lambda *_: self._wait())
        self._handles.append(before)

    def _loads(self, module: nn.Module, index: int | None) -> None:
        after = module.register_load_state_dict_post_hook(lambda *_: self._adopt(index))
        self._handles.append(after)

    def _saved(
        self, index: int, module: nn.Module, state: dict[str, Any], prefix: str, _: object
    ) -> None:
        """In a state dict made while the module runs, its masters take the slot's place."""
        for weights in self._arena.sets.values():
            for place in weights.places if weights.module == index else ():
                if place.tensors is not module._parameters and place.tensors is not module._buffers:
                    continue
                value = state.get(prefix + place.name)
                if isinstance(value, torch.Tensor) and self._arena.in_slot(weights, value):
                    self._keep(index)
                    kept = value is place.device
                    state[prefix + place.name] = place.host if kept else place.host.detach()

    def _watch(self, parts: dict[int, int]) -> None:
        """Note when a Parameter or a module is registered in one of these parts, by their ids."""
        changed = self._arena.changed

        def note(module: nn.Module, name: str, value: object) -> None:
            del name, value
            if id(module) in parts:
                changed.add(parts[id(module)])

        for register in (
            registration.register_module_parameter_registration_hook,
            registration.register_module_module_registration_hook,
        ):
            handle = register(note)
            self._handles.append(handle)
            # An offload that nobody closes leaves none of these behind.
            weakref.finalize(self._arena, handle.remove)


def _refuse_moves(*_: object, **__: object) -> NoReturn:
    raise OffloadError(
        "the model is offloaded, and where its weights are and of which type is fixed: close() "
        "first, then move or convert it, and offload it again"
    )


def _refuse_copies(*_: object) -> NoReturn:
    raise OffloadError(
        "the model is offloaded, and a copy of it would share its slots: close() first, or copy or "
        "save its state_dict()"
    )


FIXED = {"_apply": _refuse_moves, "__deepcopy__": _refuse_copies, "__reduce_ex__": _refuse_copies}
"""What stands for a module's own method while it is offloaded: everything that would move, convert,
copy or pickle it comes here before anything is done."""
