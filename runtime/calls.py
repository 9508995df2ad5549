"""The runs under way in one offload, and the stacks on which their calls are.

torch calls no hook after a module for a KeyboardInterrupt or SystemExit. So whether a run is still
under way is read from the stack of the thread that it began in.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

from runtime.interpreter import Step
from schedule.errors import OffloadError

Call = tuple[Step, AbstractContextManager[Any]]
"""One run under way, and the stream that was current when it began, on which it resumes. A plain
tuple: one is made for each run."""


def alive(
    calls: Iterable[Call], modules: tuple[nn.Module, ...], thread: int, but: nn.Module | None
) -> list[Call]:
    """Those of one thread's calls that are on its stack; one call of the module ``but`` is none
    of them: its hook is only asking."""
    on_stack = Counter(_modules_on_stack(thread))
    if but is not None:
        on_stack[id(but)] -= 1
    found = []
    for call in calls:
        module = id(modules[call[0].module])
        if on_stack[module] > 0:
            on_stack[module] -= 1
            found.append(call)
    return found


def overlap(what: str, runs: str, thread: int) -> OffloadError:
    """The error for what was called in this thread while ``runs`` runs in that one."""
    here, there = _name_of(threading.get_ident()), _name_of(thread)
    return OffloadError(
        f"{what} was called in thread {here!r} while {runs} runs in thread {there!r}: the threads "
        f"would share its slots; let the calls follow each other, for instance under a lock"
    )


def _name_of(thread: int) -> str:
    """As ``threading`` knows it, which knows those alone that it started, or that asked."""
    names = {one.ident: one.name for one in threading.enumerate()}
    return names.get(thread, str(thread))


def _modules_on_stack(thread: int) -> Iterator[int]:
    """The ids of the modules whose calls are on that thread's stack; none if it has ended. A
    thread goes on meanwhile, but a run of ours that ends properly waits for the lock of the hooks.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code is nn.Module._call_impl.__code__:
            yield id(frame.f_locals["self"])
        frame = frame.f_back
