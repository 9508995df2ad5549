"""Execution orders and delay patterns: what a model and a device may do that no schedule knows."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from proofs.strategies.sizes import at_least_one
from schedule.operations import ONE_COPY_STREAM, Listing, Streams
from schedule.tasks import write_out

IN_ORDER, ENDED, SKIPPED, REPEATED = "in order", "ended early", "skipped", "repeated"
BACKWARDS, ANY = "backwards", "any"
ORDERS = (IN_ORDER, ENDED, SKIPPED, REPEATED, BACKWARDS, ANY)
"""Kinds of passes: all modules in order; the last ones missing; others in a row missing; some in a
row run once more; some in a row backwards; any modules at all, up to twice as many as there are."""


class Pass(NamedTuple):
    """kind: one of ORDERS.   modules: which run, in that order; at least one."""

    kind: str
    modules: tuple[int, ...]


def orders(modules: int, *, max_passes: int = 4) -> st.SearchStrategy[tuple[Pass, ...]]:
    """Execution orders of a ring of so many modules: for each of one or more passes, who runs.

    Run it against a model, ``for one in order: for module in one.modules: x = layers[module](x)``,
    or against the guard: ``proofs.arrivals.arrive(schedule, [one.modules for one in order])``.
    Shrinks towards fewer passes, each of them in order, then of an earlier kind of ORDERS; a kind
    towards few and first modules that are out of order.
    ValueError for numbers that are not integers, at least 1.
    """
    at_least_one("modules", modules)
    most = at_least_one("max_passes", max_passes)
    return st.lists(_passes(modules), min_size=1, max_size=most).map(tuple)


@st.composite
def _passes(draw: st.DrawFn, modules: int) -> Pass:
    """Where a kind needs two numbers it is drawn from two, so that what fails shrinks from kind to
    kind."""
    every = tuple(range(modules))
    # What needs two modules is left out for one.
    kind = draw(st.sampled_from(ORDERS if modules > 1 else (IN_ORDER, REPEATED, ANY)))
    if kind == IN_ORDER:
        return Pass(kind, every)
    if kind == ENDED:
        return Pass(kind, every[: -draw(st.integers(1, modules - 1))])
    if kind == ANY:
        module = st.integers(0, modules - 1)
        return Pass(kind, tuple(draw(st.lists(module, min_size=1, max_size=2 * modules))))
    # A row from ``first`` up to ``stop``: it ends before the last module where that must run,
    # and is of two modules at least where one alone would be in order.
    least = 2 if kind == BACKWARDS else 1
    end = modules - (kind == SKIPPED)
    first = draw(st.integers(0, end - least))
    stop = draw(st.integers(first + least, end))
    row = every[first:stop]
    instead = {SKIPPED: (), REPEATED: (*row, *row), BACKWARDS: row[::-1]}[kind]
    return Pass(kind, (*every[:first], *instead, *every[stop:]))


def delays(
    listing: Listing, streams: Streams = ONE_COPY_STREAM, *, max_delay: int = 9
) -> st.SearchStrategy[tuple[int, ...]]:
    """Delay patterns of a program: how long each of its tasks takes, 1 .. max_delay of any unit.

    For ``proofs.timed.execute(listing, drawn, streams)``, which says what each run read then.
    Shrinks towards 1 everywhere. ValueError for a max_delay that is no integer, at least 1;
    ProgramError for a listing that makes no sense.
    """
    most, count = at_least_one("max_delay", max_delay), len(write_out(listing, streams).tasks)
    return st.lists(st.integers(1, most), min_size=count, max_size=count).map(tuple)
