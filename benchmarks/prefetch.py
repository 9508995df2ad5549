"""vLLM's prefetching offloader, restated for comparison: a copy a parameter into static buffers.

For each distinct layout of a parameter (its name, shape, strides and dtype) there are K buffers.
A hook before a layer waits for its copies and sets each parameter's ``.data`` to its buffer; the
hook after it sets it back, and starts the copies of the next layer in the slot. Nothing is checked.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from schedule import Ring, policies
from schedule.table import Refills

Key = tuple[str, torch.Size, tuple[int, ...], torch.dtype]


class Prefetch:
    """The hooks of one model, from its making to ``remove()``. buffers: on the device, all of
    them. masters: the parameters' values on the host."""

    def __init__(self, layers: nn.ModuleList, slots: int, device: torch.device) -> None:
        self._schedule = policies.slot_local(Ring(len(layers), slots))
        self._layers, self._inline = layers, device.type == "cpu"
        pool: dict[tuple[Key, int], torch.Tensor] = {}
        self._host: list[list[tuple[nn.Parameter, torch.Tensor]]] = []
        self._device: list[list[torch.Tensor]] = []
        for index, layer in enumerate(layers):
            self._host.append([])
            self._device.append([])
            for name, parameter in layer.named_parameters():
                host = parameter.data if self._inline else parameter.data.pin_memory()
                key = (name, host.shape, host.stride(), host.dtype), self._schedule.slot_of[index]
                if key not in pool:
                    pool[key] = torch.empty_like(host, device=device)
                self._host[index].append((parameter, host))
                self._device[index].append(pool[key])
        self.buffers = [*pool.values()]
        self.masters = [host for rows in self._host for _, host in rows]
        if not self._inline:
            self._stream = torch.Stream(device=device)
            self._landed = [torch.Event(device=device) for _ in layers]
        self._copy(self._schedule.preload)
        self._handles = []
        for index, layer in enumerate(layers):
            self._handles += [
                layer.register_forward_pre_hook(
                    torch.compiler.disable(partial(self._before, index))
                ),
                layer.register_forward_hook(torch.compiler.disable(partial(self._after, index))),
            ]

    def remove(self) -> None:
        """Take the hooks out."""
        for handle in self._handles:
            handle.remove()

    def _copy(self, refills: Refills) -> None:
        for _, module in refills:
            rows = zip(self._host[module], self._device[module], strict=True)
            if self._inline:
                for (_, host), target in rows:
                    target.copy_(host)
                continue
            self._stream.wait_stream(torch.accelerator.current_stream())
            with self._stream:
                for (_, host), target in rows:
                    target.copy_(host, non_blocking=True)
                self._landed[module].record(self._stream)

    def _before(self, index: int, *_: object) -> None:
        if not self._inline:
            torch.accelerator.current_stream().wait_event(self._landed[index])
        for (parameter, _), target in zip(self._host[index], self._device[index], strict=True):
            parameter.data = target

    def _after(self, index: int, *_: object) -> None:
        for parameter, host in self._host[index]:
            parameter.data = host
        self._copy(self._schedule.after[index])
