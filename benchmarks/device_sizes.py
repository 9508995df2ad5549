"""How large the parts of ``python -m benchmarks device`` are: as they are meant, and tiny."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch

from benchmarks.device_models import LLAMA_8B, LLAMA_70B, QWEN_06B, TINY, TINY_NORMED, Shape
from benchmarks.device_rows import Row

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CALIBRATION = "calibration"


@dataclass(frozen=True, slots=True)
class Sizes:
    """tiny: only to see that it works.           rounds: of which the median is taken.
    copies: bytes of one copy, ascending.         chunks: bytes of one of a long copy's pieces.
    decode, prefill, small, baseline: the shape, and how many of its layers.
    context: tokens that a decoding pass looks at; prompts: those that a prefilling one brings.
    unit: seconds that a module of the plan's claims computes, about; block: its bytes at most.
    width: of the linear layers that are looked at for being right; orders, replays: how many.
    """

    tiny: bool
    rounds: int
    copies: tuple[int, ...]
    chunks: int
    decode: tuple[Shape, int]
    prefill: tuple[Shape, int]
    small: tuple[Shape, int]
    baseline: tuple[Shape, int]
    slots: tuple[int, ...]
    context: int
    prompts: tuple[int, ...]
    unit: float
    block: int
    width: int
    orders: int = 300
    replays: int = 50


FULL = Sizes(
    tiny=False,
    rounds=8,
    copies=(4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB, GIB),
    chunks=32 * MIB,
    decode=(LLAMA_70B, 12),
    prefill=(LLAMA_8B, 16),
    small=(QWEN_06B, QWEN_06B.layers),
    baseline=(LLAMA_8B, 16),
    slots=(2, 4),
    context=1024,
    prompts=(2048, 8192, 16384),
    unit=2e-3,
    block=GIB,
    width=1024,
)
TINY_SIZES = Sizes(
    tiny=True,
    rounds=2,
    copies=(4 * KIB, 64 * KIB, 256 * KIB),
    chunks=64 * KIB,
    decode=(TINY, 5),
    prefill=(TINY, 4),
    small=(TINY_NORMED, TINY_NORMED.layers),
    baseline=(TINY, 4),
    slots=(2, 3),
    context=8,
    prompts=(4, 8),
    unit=0.0,
    block=64 * KIB,
    width=32,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """What every part is given. peak: bytes a second, as calibrated so far, or None.
    deadline: when all must be done, by ``time.monotonic``."""

    device: torch.device
    simulated: bool
    sizes: Sizes
    deadline: float
    peak: float | None = None

    @property
    def left(self) -> float:
        """Seconds; below zero when the time is spent."""
        return self.deadline - time.monotonic()

    def calibrated(self, row: Row) -> Bench:
        """With the row's rate, if it is the highest to the device."""
        if row.part != CALIBRATION or not row.what.startswith(TO_DEVICE) or row.rate is None:
            return self
        return replace(self, peak=max(row.rate * 1e9, self.peak or 0))


TO_DEVICE = "to the device"
"""So begin the rows of which the highest rate is the peak."""
