"""Other ways to move the weights, beside ours, for the same model and pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import torch
from torch import nn

from benchmarks import schemes
from benchmarks.device_measure import Arm, Whole, free, row_of
from benchmarks.device_memory import fitting, stack_of, whole_of
from benchmarks.device_models import Inputs, Shape, token
from benchmarks.device_rows import Row, guarded
from benchmarks.device_sizes import Bench

BASELINES = "baselines"
HOST_TIMES = 2.5
"""Host memory that a scheme takes, to the weights: page-locked copies may stand beside them."""
SCHEMES: dict[str, schemes.Scheme] = {
    "ringproof": schemes.ours,
    "vLLM's scheme": schemes.prefetch,
    "plain double buffering": schemes.double_buffering,
    "accelerate cpu_offload": schemes.accelerate,
}


def baselines(bench: Bench) -> Iterator[Row]:
    """A row a scheme, each with two slots and a model of its own, of the same weights."""
    shape, asked = bench.sizes.baseline
    count, note = fitting(shape, asked, HOST_TIMES)
    inputs = token(shape, count, bench.sizes.context, bench.device)
    whole, said = whole_of(stack_of(shape, count, bench), shape, inputs, bench)
    notes = [one for one in (note, said) if one]
    for name, scheme in SCHEMES.items():
        free()
        what = f"{shape.name}, {count} layers, {name}"
        rows = partial(_row, bench, what, shape, inputs, whole, scheme, notes)
        yield from guarded(BASELINES, what, rows)


def _row(
    bench: Bench,
    what: str,
    shape: Shape,
    inputs: Inputs,
    whole: Whole,
    scheme: schemes.Scheme,
    notes: list[str],
) -> Iterator[Row]:
    model = stack_of(shape, whole.layers, bench, on_host=True)
    weights = schemes.size(model.parameters())
    with ExitStack() as stack:
        try:
            ready = scheme(model, lambda _: model.layers, bench.device, stack)
        except schemes.NotInstalled:
            yield Row(BASELINES, what, note="not installed")
            return
        run = _Counting(ready.model, inputs, weights)
        said = "; ".join(one for one in (ready.note, *notes) if one)
        run()
        arm = Arm(run, lambda: run.copied, ready.device(), ready.locked(), said)
        yield row_of(bench, BASELINES, what, arm, whole)


class _Counting:
    """Passes, each of which copies all layers: with two slots every scheme does."""

    def __init__(self, model: nn.Module, inputs: Inputs, weights: int) -> None:
        self._model, self._inputs, self._weights, self.copied = model, inputs, weights, 0

    def __call__(self) -> torch.Tensor:
        self.copied += self._weights
        output: torch.Tensor = self._model(self._inputs)
        return output
