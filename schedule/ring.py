"""A ring: N modules run in order, again and again, through K slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from schedule.errors import RingError

EMPTY = -1
"""What a slot holds when it holds no module. A number, so that symbolic integers compare to it."""


class Sizes(Protocol):
    """The two sizes that a slot map may read: of a ``Ring``, or symbolic in a proof."""

    @property
    def modules(self) -> int: ...
    @property
    def slots(self) -> int: ...


LARGEST = 1_000_000
"""More modules or slots than this are a slip of the keyboard, not a model."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The sizes of an offload.

    modules: N >= 1, the offloaded modules, numbered 0 .. N-1 in execution order.
    slots:   K >= 1, the device buffers, numbered 0 .. K-1. K >= N is legal.
    Raises RingError for anything but integers from 1 to LARGEST (a bool is not a size).
    """

    modules: int
    slots: int

    def __post_init__(self) -> None:
        for name, value in (("modules", self.modules), ("slots", self.slots)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise RingError(
                    f"{name} must be an integer, got {value!r} of type {type(value).__name__}; "
                    f"pass int({name}), at least 1"
                )
            if value < 1:
                raise RingError(f"{name} must be at least 1, got {value}; a ring has at least one")
            if value > LARGEST:
                raise RingError(f"{name} must be at most {LARGEST}, got {value}")


def inside(numbers: Sequence[int], size: int) -> bool:
    """Whether these are all plain ints from 0 to below the size: the usual case, quickly seen."""
    if not numbers:
        return True
    return set(map(type, numbers)) == {int} and min(numbers) >= 0 and max(numbers) < size


class SlotTable(Protocol):
    """One number a slot: ``table[slot]`` reads, ``table.put(slot, value)`` is the table after a
    write. Machine and scan touch slots through these two operations alone, so that a proof can
    pass a symbolic table in place of a real one."""

    def __getitem__(self, slot: int, /) -> int: ...
    def put(self, slot: int, value: int) -> Self: ...


class Slots(tuple[int, ...]):
    """A slot table that never changes: ``put`` makes a new one."""

    __slots__ = ()

    @classmethod
    def empty(cls, slots: int) -> Slots:
        return cls((EMPTY,) * slots)

    def put(self, slot: int, value: int) -> Slots:
        return Slots((*self[:slot], value, *self[slot + 1 :]))


class ScanTable(list[int]):
    """A slot table for one scan: ``put`` writes in place, so that a scan is linear."""

    def put(self, slot: int, value: int) -> Self:
        self[slot] = value
        return self
