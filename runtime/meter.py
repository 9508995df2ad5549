"""How long each module of an offloaded model runs, its weights being there, and what stays on the
device between them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from runtime.device import Mark, nanoseconds
from runtime.offloaded import Offloaded
from runtime.sizes import counted
from schedule.errors import OffloadError
from schedule.operations import COMPUTE

Load = Callable[[int], Mark]
"""Puts a load beside a module that is about to run; the moment at which it ends."""


class Span(NamedTuple):
    """at: of a module, or of what is before it.     begin, end: on the compute stream.
    covered: whether the load, if there is one, went on beyond the end."""

    at: int
    begin: Mark
    end: Mark
    covered: bool = True


@dataclass(frozen=True, slots=True)
class Timed:
    """Nanoseconds of one pass: of each module's run, of what is before each and after the last;
    covered: by module, whether the load went on beyond its run."""

    compute: tuple[int, ...]
    between: tuple[int, ...]
    covered: tuple[bool, ...]


class Meter:
    """Hooks around those of an offload. Before each module runs, and after it, the device is
    idle: what is measured is the module alone, or beside its load."""

    def __init__(self, offloaded: Offloaded, load: Load | None) -> None:
        self._streams, self._load = offloaded.streams, load
        self._root, self._modules = offloaded.selection.root, offloaded.selection.modules
        self._calls = 0
        self._runs: list[Span] = []
        self._between: list[Span] = []
        self._begin = self._mark()
        self._ends: Mark | None = None

    def _mark(self) -> Mark:
        return self._streams.mark(COMPUTE)

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """With its hooks: the first of all before a module, and the last; and after it likewise."""
        handles: list[Any] = []
        try:
            if self._root is not None:
                handles.append(self._root.register_forward_pre_hook(self._call))
            for index, module in enumerate(self._modules):
                before = module.register_forward_pre_hook
                handles.append(before(partial(self._arrive, index), prepend=True))
                handles.append(before(partial(self._start, index)))
                after = module.register_forward_hook
                handles.append(after(partial(self._end, index), prepend=True))
                handles.append(after(self._leave))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def measure(self, run: Callable[[], object], name: str) -> Timed:
        """One pass of this workload. OffloadError if it runs no module, or is several."""
        self._calls = 0
        self._runs.clear()
        self._between.clear()
        self._streams.synchronize()
        self._begin = self._mark()
        run()
        self._between.append(Span(len(self._modules), self._begin, self._mark()))
        self._streams.synchronize()
        number = len(self._modules)
        if not self._runs:
            raise OffloadError(
                f"inputs[{name!r}] runs none of the {counted(number, 'module')}; give what runs "
                f"the model"
            )
        if self._calls > 1:
            raise OffloadError(
                f"inputs[{name!r}] calls the model {self._calls} times; give a function that does "
                f"it once: a workload is one pass"
            )
        return Timed(
            _sums(self._runs, number),
            _sums(self._between, number + 1),
            tuple(all(s.covered for s in self._runs if s.at == i) for i in range(number)),
        )

    def _call(self, *_: Any) -> None:
        self._calls += 1

    def _arrive(self, index: int, *_: Any) -> None:
        self._between.append(Span(index, self._begin, self._mark()))

    def _start(self, index: int, *_: Any) -> None:
        self._streams.synchronize()  # its weights are there
        self._ends = None if self._load is None else self._load(index)
        self._begin = self._mark()

    def _end(self, index: int, *_: Any) -> None:
        end, ends = self._mark(), self._ends
        end.synchronize()
        self._runs.append(Span(index, self._begin, end, ends is None or not ends.query()))

    def _leave(self, *_: Any) -> None:
        self._streams.synchronize()
        self._begin = self._mark()


def _sums(spans: Iterable[Span], number: int) -> tuple[int, ...]:
    found = [0] * number
    for at, begin, end, _ in spans:
        found[at] += nanoseconds(begin, end)
    return tuple(found)


def medians(passes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """By position."""
    return tuple(round(statistics.median(times)) for times in zip(*passes, strict=True))


def covered(passes: Sequence[Timed]) -> tuple[int, ...]:
    """The median of each module's run, of the runs that the load covered if there are any."""
    found = []
    for module in range(len(passes[0].compute)):
        runs = [one.compute[module] for one in passes if one.covered[module]]
        found.append(statistics.median(runs or [one.compute[module] for one in passes]))
    return tuple(map(round, found))
