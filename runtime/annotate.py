"""Spans in torch's profiler: copies, runs and passes, under the labels of ``schedule.labels``.

While no profiler runs they cost a check, and nothing else. A copy's span is around its issue. A
run's and a pass's are opened in one hook and closed in another, which torch does not call for a
KeyboardInterrupt: what was left open is closed by the next module that arrives.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch.autograd import profiler
from torch.profiler import record_function

from schedule.labels import PASS

_NOTHING = nullcontext()


def span(label: str) -> AbstractContextManager[object]:
    """A context that is a span while a profiler runs."""
    return record_function(label) if profiler._is_profiler_enabled else _NOTHING


class Spans:
    """The open spans of one offload's passes and runs.

    modules: how many there are.
    depth:  how many runs a pass or run is inside of.
    A pass lasts from its first module's arrival until its last module departed.
    """

    def __init__(self, modules: int) -> None:
        self._last = modules - 1
        self._passes: list[tuple[int, record_function]] = []
        self._runs: list[tuple[int, record_function]] = []

    def wanted(self) -> bool:
        """Whether there is anything to open or to close."""
        return bool(profiler._is_profiler_enabled or self._runs or self._passes)

    def arrive(self, module: int, depth: int) -> None:
        """A module is about to get its weights."""
        _close(self._runs, depth)
        if module == 0:
            _close(self._passes, depth)
            _open(self._passes, depth, PASS)

    def begin(self, label: str, depth: int) -> None:
        """A module runs from now on."""
        _open(self._runs, depth, label)

    def end(self, depth: int) -> None:
        """The run of this depth ended."""
        _close(self._runs, depth)

    def depart(self, module: int, depth: int) -> None:
        """What a module's end issues was issued."""
        if module == self._last:
            _close(self._passes, depth)

    def close(self) -> None:
        """Close whatever is open."""
        _close(self._runs, 0)
        _close(self._passes, 0)


def _open(spans: list[tuple[int, record_function]], depth: int, label: str) -> None:
    if profiler._is_profiler_enabled:
        opened = record_function(label)
        opened.__enter__()
        spans.append((depth, opened))


def _close(spans: list[tuple[int, record_function]], depth: int) -> None:
    """Close those of this depth and deeper, the innermost first."""
    while spans and spans[-1][0] >= depth:
        spans.pop()[1].__exit__(None, None, None)
