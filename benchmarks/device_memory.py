"""Is there memory for a model? Its layers are made on the device; what does not fit is left out."""

from __future__ import annotations

import torch

from benchmarks.device_measure import Whole, passes
from benchmarks.device_models import Inputs, Shape, Stack, layer_on
from benchmarks.device_sizes import GIB, Bench
from runtime import memory
from runtime.report import device_memory
from runtime.sizes import megabytes
from schedule.errors import OffloadError

HOST_SHARE = 0.8
"""Of the host memory that is available, so much may be taken."""
LEAST = 3
"""Fewer layers than this are no ring worth measuring."""
BESIDE = 4 * GIB
"""Device memory for what is not weights: activations, caches, the libraries' own."""


def fitting(shape: Shape, asked: int, times: float) -> tuple[int, str]:
    """How many of the layers the host has memory for, ``times`` over; and what to say of it, if
    not for all. OffloadError if for too few."""
    there = memory.available()
    if there is None:
        return asked, ""
    count = min(asked, int(there * HOST_SHARE / (shape.bytes * times)))
    if count < min(asked, LEAST):
        raise OffloadError(
            f"{shape.name}: {megabytes(there)} of host memory are available, and {LEAST} layers "
            f"need {megabytes(LEAST * shape.bytes * times / HOST_SHARE)}; free some"
        )
    said = f"{count} of {asked} layers, since {megabytes(there)} of host memory are available"
    return count, "" if count == asked else said


def stack_of(shape: Shape, count: int, bench: Bench, *, on_host: bool = False) -> Stack:
    """So many layers, the same ones every time; on the device if all of them fit there, with as
    much again for slots, else on the host."""
    free = device_memory(bench.device)[1]
    fits = free is None or 2 * count * shape.bytes + BESIDE < free
    kept = not on_host and fits
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = []
        for _ in range(count):
            layer = layer_on(shape, bench.device)
            layers.append(layer if kept else layer.to("cpu"))
    return Stack(layers).eval()


def whole_of(model: Stack, shape: Shape, inputs: Inputs, bench: Bench) -> tuple[Whole, str]:
    """A pass of the model with all weights on the device. If they don't fit, one layer runs as
    often as there are layers, and there is no output; that is said."""
    count, said = len(model.layers), ""
    weights = next(model.parameters())
    if weights.device != bench.device:
        first = layer_on(shape, bench.device)
        said = f"compute: one layer {count} times, since all do not fit the device"
        alone = Stack([first] * count).eval()
        seconds = passes(lambda: alone(inputs), bench).seconds
        return Whole(seconds, None, count), said
    seconds = passes(lambda: model(inputs), bench).seconds
    return Whole(seconds, model(inputs), count), said
