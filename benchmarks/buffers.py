"""Plain double buffering, for comparison: two device buffers, one copy a layer, nothing checked.

A layer's weights lie in one page-locked block. While a layer runs from one buffer, the block of the
next one is copied into the other, whatever the layer; the last one's next is the first.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

ALIGNED = 256


class TwoBuffers:
    """The hooks of one model on an accelerator, from its making to ``remove()``; its layers run in
    order, all of them. blocks: page-locked, of the layers. buffers: on the device."""

    def __init__(self, layers: nn.ModuleList, device: torch.device) -> None:
        self._parameters = [list(layer.parameters()) for layer in layers]
        sizes = [sum(map(_aligned, rows)) for rows in self._parameters]
        self.blocks = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for size in sizes]
        self.buffers = [torch.empty(max(sizes), dtype=torch.uint8, device=device) for _ in range(2)]
        self._host = []
        for block, rows in zip(self.blocks, self._parameters, strict=True):
            views = _views(block, rows)
            for view, parameter in zip(views, rows, strict=True):
                view.copy_(parameter)
                parameter.data = view
            self._host.append(views)
        self._device = [
            [_views(buffer, rows) for rows in self._parameters] for buffer in self.buffers
        ]
        self._stream = torch.Stream(device=device)
        self._landed, self._ran = (
            [torch.Event(device=device) for _ in self.buffers] for _ in range(2)
        )
        self._turn = 0
        self._stream.wait_stream(torch.accelerator.current_stream(device))
        self._copy(0, self._turn)
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

    def _copy(self, index: int, buffer: int) -> None:
        block = self.blocks[index]
        with self._stream:
            self._stream.wait_event(self._ran[buffer])
            self.buffers[buffer][: block.numel()].copy_(block, non_blocking=True)
            self._landed[buffer].record(self._stream)

    def _before(self, index: int, *_: object) -> None:
        torch.accelerator.current_stream().wait_event(self._landed[self._turn])
        self._set(index, self._device[self._turn][index])
        self._copy((index + 1) % len(self.blocks), 1 - self._turn)

    def _after(self, index: int, *_: object) -> None:
        self._ran[self._turn].record(torch.accelerator.current_stream())
        self._set(index, self._host[index])
        self._turn = 1 - self._turn

    def _set(self, index: int, values: list[torch.Tensor]) -> None:
        for parameter, value in zip(self._parameters[index], values, strict=True):
            parameter.data = value


def _aligned(parameter: torch.Tensor) -> int:
    return -(-parameter.numel() * parameter.element_size() // ALIGNED) * ALIGNED


def _views(block: torch.Tensor, rows: list[nn.Parameter]) -> list[torch.Tensor]:
    """The parameters' places in a block, one behind the other."""
    found, start = [], 0
    for parameter in rows:
        size = parameter.numel() * parameter.element_size()
        place = block[start : start + size].view(parameter.dtype)
        found.append(place.view(parameter.shape))
        start += _aligned(parameter)
    return found
