"""What people do with an offloaded model between its passes: save, load, move, copy, change it.

Saving shows the host masters, also while a module runs from its slot. Loading first waits for
copies that still read the masters, and adopts what it replaced. Moving, converting, copying and
pickling the model are refused before anything is done; a module or a Parameter that is registered
is noted, so that the next run does not overlook it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules import module as registration

from runtime.arena import Arena
from runtime.hooks import Hooks
from schedule.errors import OffloadError


class Around:
    """The hooks on saving, loading, moving and registering of one offload.

    wait:  called before anything is loaded.     adopt: called with the module (by index) that was
           loaded, or None for all and the rest of the model.
    """

    def __init__(
        self,
        arena: Arena,
        hooks: Hooks,
        *,
        wait: Callable[[], None],
        adopt: Callable[[int | None], None],
    ) -> None:
        self._arena, self._hooks = arena, hooks
        self._wait, self._adopt = wait, adopt
        self._handles: list[Any] = []
        self._watches: list[Callable[[], object]] = []
        self._shadowed: list[tuple[nn.Module, dict[str, Any], tuple[str, ...]]] = []
        self._loading: nn.Module | None = None

    def register(self) -> None:
        """Put the hooks in; those that are there already are taken out first."""
        self.remove()
        selection = self._hooks.selection
        parts: dict[int, int] = {}
        for index, module in enumerate(selection.modules):
            for part in module.modules():
                parts[id(part)] = index
                self._loads(part, index)
                mend = part.register_state_dict_pre_hook(lambda *_: self._hooks.saved())
                self._handles.append(mend)
                saved = partial(self._saved, index)
                self._handles.append(part.register_state_dict_post_hook(saved))
                self._merges(index, part)
        for module in self._above():
            self._loads(module, None)
        # What lies beside them too: it would be converted, and the rest would not fit it.
        root = selection.root
        for scope in selection.modules if root is None else (root,):
            for module in scope.modules():
                self._shadow(module, FIXED)
        self._watch(parts)

    def remove(self) -> None:
        """Take the hooks out."""
        for handle in self._handles:
            handle.remove()
        for stop in self._watches:
            stop()
        for module, before, names in reversed(self._shadowed):  # one part may be there twice
            for name in names:
                vars(module).pop(name, None)
            vars(module).update(before)
        self._handles.clear()
        self._watches.clear()
        self._shadowed.clear()
        self._loading = None

    def _above(self) -> Iterator[nn.Module]:
        """The modules that an offloaded one lies in."""
        selection = self._hooks.selection
        root, chosen = selection.root, {id(module) for module in selection.modules}
        for module in [] if root is None else root.modules():
            inner = {id(part) for part in module.modules()}
            if id(module) not in chosen and inner & chosen:
                yield module

    def _shadow(self, module: nn.Module, methods: Mapping[str, Callable[..., object]]) -> None:
        """Let these stand for the module's own methods."""
        own = vars(module)
        self._shadowed.append((module, {n: own[n] for n in methods if n in own}, tuple(methods)))
        own.update(methods)

    def _merges(self, index: int, part: nn.Module) -> None:
        """An adapter's own methods write into the weight beside it through ``.data`` (peft's do),
        which no version counts: what they wrote is loaded before the next run."""
        if not hasattr(part, "merged_adapters"):
            return

        def written(name: str, *arguments: Any, **options: Any) -> Any:
            if self._hooks.is_running(index):
                raise OffloadError(
                    f"{name}() of a {type(part).__name__} was called while its module runs from a "
                    f"slot, where what it writes would be lost; call it between passes"
                )
            self._wait()
            self._arena.show_hosts(index)
            try:
                return methods[name](*arguments, **options)
            finally:
                self._adopt(index)  # some give the weight other bytes, or replace it
                self._hooks.interpreter.forget()

        methods = {one: getattr(part, one) for one in ("merge", "unmerge") if hasattr(part, one)}
        self._shadow(part, {name: partial(written, name) for name in methods})

    def _loads(self, module: nn.Module, index: int | None) -> None:
        """Before it is loaded, copies that still read what is there have landed; what it replaced
        is adopted at the end, once, by the outermost module that is loaded."""

        def before(*_: object) -> None:
            self._wait()
            self._arena.show_hosts(index)
            if self._loading is None:
                self._loading = module

        def after(*_: object) -> None:
            if self._loading is module:
                self._loading = None
                self._adopt(index)

        self._handles.append(module.register_load_state_dict_pre_hook(before))
        self._handles.append(module.register_load_state_dict_post_hook(after))

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
                    self._hooks.keep(index)
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
            # An offload that nobody closes leaves none of these behind.
            self._watches.append(weakref.finalize(self._arena, register(note).remove))


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


FIXED = {
    "_apply": _refuse_moves,
    "__deepcopy__": _refuse_copies,
    "__reduce_ex__": _refuse_copies,  # pickle asks the object for it,
    "__getstate__": _refuse_copies,  # copy.copy its class, which then asks the object for this
}
"""What stands for a module's own method while it is offloaded: everything that would move, convert,
copy or pickle it comes here before anything is done."""
