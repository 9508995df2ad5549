"""Faults put into a program's listing, so that the engines have something to find; and changes
that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from schedule.operations import COMPUTE, HOST, Copy, Issued, Listing, Record, Wait, Write

Fence = Callable[[Any], bool]


def without(drop: Fence) -> Callable[[Listing], Listing]:
    return lambda listing: tuple(issued for issued in listing if not drop(issued.operation))


def _waits(name: str, stream: str | None = None) -> Fence:
    return lambda one: (
        isinstance(one, Wait) and one.event.name == name and stream in (None, one.stream)
    )


def _record_first(listing: Listing) -> Listing:
    """Every event of a slot is recorded before its copy, not after."""
    found = list(listing)
    for at, (operation, _) in enumerate(listing[:-1]):
        after = listing[at + 1].operation
        if isinstance(operation, Copy) and isinstance(after, Record):
            found[at], found[at + 1] = found[at + 1], found[at]
    return tuple(found)


def _pageable(listing: Listing) -> Listing:
    """Copies from pageable memory, whose block the host may write again at once."""
    listing = without(lambda one: isinstance(one, Wait) and one.stream == HOST)(listing)
    return tuple(
        Issued(replace(operation, pageable=True), boundary)
        if isinstance(operation, Copy)
        else Issued(operation, boundary)
        for operation, boundary in listing
    )


def _another_kept(listing: Listing) -> Listing:
    """The host keeps what a slot holds as another module's."""
    return tuple(
        Issued(replace(operation, module=operation.module + 1), boundary)
        if isinstance(operation, Write)
        else Issued(operation, boundary)
        for operation, boundary in listing
    )


def _not_loaded_anew(listing: Listing) -> Listing:
    """What comes after the host wrote a block is not copied."""
    writes = [at for at, one in enumerate(listing) if isinstance(one.operation, Write)]
    first = min(writes, default=len(listing))
    kept = without(lambda one: isinstance(one, Copy))(listing[first:])
    return (*listing[:first], *kept)


def _host_waits(listing: Listing) -> Listing:
    """The host waits in the stream's place: slow, and as safe."""
    return tuple(
        Issued(replace(operation, stream=HOST), boundary)
        if isinstance(operation, Wait) and operation.event.graph is None
        else Issued(operation, boundary)
        for operation, boundary in listing
    )


AS_IT_IS, NO_JOIN, HOST_WAITS = "as it is", "no join", "host waits"
FAULTY: dict[str, Callable[[Listing], Listing]] = {
    AS_IT_IS: lambda listing: listing,
    "no fork": without(lambda one: isinstance(one, Record) and one.event.name == "ran"),
    "no wait for the copy": without(_waits("landed", COMPUTE)),
    "no order of copies": without(lambda one: _waits("landed")(one) and one.stream != COMPUTE),
    NO_JOIN: without(_waits("drained")),
    "stale record": _record_first,
    "pageable": _pageable,
    HOST_WAITS: _host_waits,
    "another kept": _another_kept,
    "not loaded anew": _not_loaded_anew,
    "no wait of the host": without(lambda one: isinstance(one, Wait) and one.stream == HOST),
}
