"""How much anonymous memory a process has, and at most while it does something. For the processes
that tests start for that alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from torch import nn

T = TypeVar("T")


def anonymous() -> int:
    """Bytes of this process's memory that no file backs."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))


def peak(action: Callable[[], T]) -> tuple[int, T]:
    """The most that there was while the action ran and after it, looked at again and again; and
    the action's result."""
    found, done = [], threading.Event()

    def watch() -> None:
        while not done.wait(0.0002):
            found.append(anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    result = action()
    found.append(anonymous())
    done.set()
    thread.join()
    return max(found), result


def layers(count: int, width: int) -> nn.Sequential:
    """So many layers whose weights are squares of that width."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(count)])
