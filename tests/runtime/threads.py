"""Passes in threads of their own, which stop inside a layer for as long as a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

import torch
from torch import nn

T = TypeVar("T")
WIDTH = 8
SECONDS = 30
"""No test waits that long unless it fails."""


class Slow(nn.Linear):
    """Takes its weights, waits as it is told, and computes with what it took."""

    wait: Callable[[], object] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, bias, wait = self.weight, self.bias, self.wait
        if wait is not None:
            self.wait = None
            wait()
        return torch.tanh(nn.functional.linear(x, weight, bias))


def slow(modules: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Slow(WIDTH, WIDTH) for _ in range(modules)))


def in_thread(function: Callable[[], T]) -> T:
    """What the function gives, or raises, in a thread that is gone then."""
    with ThreadPoolExecutor(1, "other") as pool:
        return pool.submit(torch.no_grad()(function)).result(SECONDS)


@contextmanager
def paused(layer: Slow, function: Callable[[], T]) -> Iterator[Future[T]]:
    """The function in a thread called ``first_0``, which is inside that layer until the context
    ends; then it goes on, and has ended."""
    inside, on = Event(), Event()

    def wait() -> None:
        inside.set()
        assert on.wait(SECONDS)

    layer.wait = wait
    with ThreadPoolExecutor(1, "first") as pool:
        future = pool.submit(torch.no_grad()(function))
        try:
            assert inside.wait(SECONDS)
            yield future
        finally:
            on.set()
