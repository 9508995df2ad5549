"""Where two policies differ: in one ring entry by entry, or in every ring to a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm
from typing import Any, NamedTuple

from schedule.drawing import many
from schedule.errors import PolicyError, RingError
from schedule.policy import Policy
from schedule.ring import Ring
from schedule.summary import summary_of, verdict_of
from schedule.table import Schedule
from schedule.trace import REFILLS, tables_json
from schedule.verifier import Findings, check
from schedule.windows import windows

VERDICT, COPIES, WINDOWS = "verdict", "copies", "windows"
CHANGES = (VERDICT, COPIES, WINDOWS)
"""What may change from the first schedule to the second, beside entries of its tables."""


class Entry(NamedTuple):
    """An entry in which two schedules differ: its table, its index, and what each has there, as
    in ``tables_json``; None where a table has no such entry."""

    table: str
    at: int
    first: Any
    second: Any

    def __str__(self) -> str:
        return f"{self.table}[{self.at}]: {_cell(self.first)} | {_cell(self.second)}"


@dataclass(frozen=True, slots=True)
class Side:
    """One of two schedules: what was found of it, its copies a pass, and its windows by step."""

    findings: Findings
    copies: float
    windows: tuple[int | None, ...]

    @property
    def smallest(self) -> str:
        """The smallest window in words."""
        found = [window for window in self.windows if window is not None]
        return str(min(found)) if found else "none"

    def as_json(self) -> dict[str, Any]:
        return summary_of(self.findings) | {WINDOWS: list(self.windows)}

    def __str__(self) -> str:
        summary = summary_of(self.findings)
        return (
            f"{summary['policy']}: {summary['verdict']}, {summary['copies']} copies a pass, "
            f"{summary['useless_refills']} of them useless, smallest window {self.smallest}"
        )


@dataclass(frozen=True, slots=True)
class Compared:
    """Two schedules of one ring, and the entries in which they differ."""

    first: Side
    second: Side
    entries: tuple[Entry, ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """Which of CHANGES there are."""
        first, second = self.first, self.second
        changed = {
            VERDICT: first.findings.safe != second.findings.safe,
            COPIES: first.copies != second.copies,
            WINDOWS: any(one != other for one, other in self._windows()),
        }
        return tuple(name for name in CHANGES if changed[name])

    def _windows(self) -> list[tuple[int | None, int | None]]:
        """The windows step by step, until both schedules repeat."""
        first, second = self.first.windows, self.second.windows
        steps = lcm(len(first), len(second))
        repeated = (windows * (steps // len(windows)) for windows in (first, second))
        return list(zip(*repeated, strict=True))

    def as_json(self) -> dict[str, Any]:
        return {
            "first": self.first.as_json(),
            "second": self.second.as_json(),
            "changes": list(self.changes),
            "differences": [entry._asdict() for entry in self.entries],
        }

    def __str__(self) -> str:
        """Line by line, one an entry."""
        lines = [self.first, self.second, *self.entries]
        for at, (first, second) in enumerate(self._windows()):
            if first != second:
                lines.append(f"window[{at}]: {_runs(first)} | {_runs(second)}")
        return "\n".join(map(str, lines if self.entries else [*lines, "the same schedule"]))

    def line(self) -> str:
        """In one line: the indices of the entries, and an arrow where something changes. Of the
        windows the smallest is shown."""
        tables: dict[str, list[int]] = {}
        for entry in self.entries:
            tables.setdefault(entry.table, []).append(entry.at)
        ring = self.first.findings.schedule.ring
        where = ", ".join(f"{name}[{_spans(places)}]" for name, places in tables.items())
        shown = [
            (verdict_of(side.findings), f"{side.copies:g}", side.smallest)
            for side in (self.first, self.second)
        ]
        verdict, copies, window = (
            f"{first} -> {second}" if name in self.changes else first
            for name, first, second in zip(CHANGES, *shown, strict=True)
        )
        numbers = f"{verdict}; copies {copies}; smallest window {window}"
        return f"N={ring.modules}, K={ring.slots}: {where}; {numbers}"


@dataclass(frozen=True, slots=True)
class Alone:
    """A ring for which one policy alone makes a schedule, or none does.

    policy: the one that does, or None.    reason: why the other does not.
    """

    ring: Ring
    policy: str | None
    reason: str

    @property
    def who(self) -> str:
        return "neither" if self.policy is None else f"{self.policy} alone"

    def as_json(self) -> dict[str, Any]:
        sizes = {"modules": self.ring.modules, "slots": self.ring.slots}
        return {**sizes, "policy": self.policy, "reason": self.reason}

    def line(self) -> str:
        return f"N={self.ring.modules}, K={self.ring.slots}: {self.who}; {self.reason}"


@dataclass(frozen=True, slots=True)
class Rings:
    """Every ring to a bound, by N, then K; ``first`` and ``second`` are the policies' names."""

    first: str
    second: str
    bound: int
    found: tuple[Compared | Alone, ...]

    @property
    def both(self) -> int:
        """How many rings there are for which both policies make a schedule."""
        return sum(isinstance(one, Compared) for one in self.found)

    @property
    def differing(self) -> list[Compared]:
        """Those in whose tables the two differ."""
        return [one for one in self.found if isinstance(one, Compared) and one.entries]

    @property
    def alone(self) -> list[Alone]:
        """Those for which one or both make none."""
        return [one for one in self.found if isinstance(one, Alone)]

    def as_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "to": self.bound,
            "both": self.both,
            "changes": self._changes(),
            "differing": [one.as_json() for one in self.differing],
            "alone": [one.as_json() for one in self.alone],
        }

    def __str__(self) -> str:
        """A line for each ring that differs or has one policy alone, and how many there are."""
        shown = [
            one.line()
            for one in self.found
            if (one.entries if isinstance(one, Compared) else one.policy)
        ]
        return "\n".join([*shown, self._total()])

    def _changes(self) -> dict[str, int]:
        """In how many of the rings that differ each of CHANGES is."""
        return {name: sum(name in one.changes for one in self.differing) for name in CHANGES}

    def _total(self) -> str:
        rings = f"rings to {self.bound}x{self.bound}"
        alone = Counter(one.who for one in self.alone)
        rest = "".join(f"; {many(count, 'ring')} with {who}" for who, count in alone.items())
        if not self.differing:
            same = f"all {self.both} {rings} that have both" if alone else f"all {rings}"
            return f"the same schedule for {same}{rest}"
        changes = ", ".join(f"{name} in {count}" for name, count in self._changes().items())
        head = f"{len(self.differing)} of {self.both} {rings} differ"
        return f"{head}; what changes: {changes}{rest}"


def compared(first: Schedule, second: Schedule) -> Compared:
    """Two schedules of one ring."""
    tables = [tables_json(schedule) for schedule in (first, second)]
    entries = tuple(
        Entry(name, at, a, b)
        for name in ("slot_of", *REFILLS)
        for at, (a, b) in enumerate(_pairs(tables[0][name], tables[1][name]))
        if a != b
    )
    return Compared(_side(first), _side(second), entries)


def compared_rings(first: Policy, second: Policy, bound: int) -> Rings:
    """Two policies in every ring to the bound, at least 1. PolicyError if there is no ring for
    which both make a schedule."""
    if bound < 1:
        raise RingError(f"rings are compared to a size of at least 1, got {bound}")
    sizes = product(range(1, bound + 1), repeat=2)
    found = tuple(_compared(first, second, Ring(*size)) for size in sizes)
    rings = Rings(first.name, second.name, bound, found)
    if not rings.both:
        raise PolicyError(f"no ring to {bound}x{bound} has both policies: {rings.alone[0].line()}")
    return rings


def _compared(first: Policy, second: Policy, ring: Ring) -> Compared | Alone:
    one, other = _made(first, ring), _made(second, ring)
    if isinstance(one, Schedule) and isinstance(other, Schedule):
        return compared(one, other)
    if isinstance(one, Schedule):
        return Alone(ring, first.name, str(other))
    return Alone(ring, second.name if isinstance(other, Schedule) else None, one)


def _made(policy: Policy, ring: Ring) -> Schedule | str:
    """The policy's schedule, or why there is none."""
    try:
        return policy(ring)
    except PolicyError as error:
        return str(error)


def _side(schedule: Schedule) -> Side:
    return Side(check(schedule), schedule.copies / schedule.period, windows(schedule))


def _pairs(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[Any, Any]]:
    length = max(len(first), len(second))
    padded = [[*table, *[None] * (length - len(table))] for table in (first, second)]
    return list(zip(*padded, strict=True))


def _cell(value: Any) -> str:
    """A slot, a refill or a list of refills, in words."""
    if isinstance(value, dict):
        return f"module {value['module']} into slot {value['slot']}"
    if isinstance(value, list):
        return ", ".join(map(_cell, value)) or "no refill"
    return "nothing" if value is None else f"slot {value}"


def _runs(window: int | None) -> str:
    if window is None:
        return "none"
    return many(window, "run")


def _spans(places: Sequence[int]) -> str:
    """Ascending numbers, those in a row as first and last: ``0, 2-5``."""
    spans: list[list[int]] = []
    for place in places:
        if spans and spans[-1][-1] == place - 1:
            spans[-1] = [spans[-1][0], place]
        else:
            spans.append([place])
    return ", ".join("-".join(map(str, span)) for span in spans)
