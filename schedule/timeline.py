"""A schedule as lanes over boundaries, for people.

One column a boundary; the lanes are the compute stream, the copy stream and every slot's
content. In a slot's lane ``[2]`` is module 2 being read by its run, ``>2`` module 2 arriving,
``2`` module 2 being there. An ``!`` marks what violates a property: a refill that destroys what
is still needed, a run that reads another module's weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schedule.ring import EMPTY
from schedule.table import ENTER, LEAVE, PRELOAD, RUN, Moment, Schedule
from schedule.verifier import PROPERTIES, Findings, Lint, Violation

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Column:
    """One boundary: its heading, and a cell for compute, copy and each slot."""

    heading: str
    cells: tuple[str, ...]


def show(findings: Findings, passes: int) -> str:
    """The lanes of that many passes, or of as many as lead to the violations."""
    schedule = findings.schedule
    steps = [violation.trace[-1].step for violation in findings.violations]
    passes = max([passes, *(step // schedule.ring.modules + 1 for step in steps)])
    periods = -(-passes // schedule.period)
    last = passes * schedule.ring.modules
    moments = [moment for moment in schedule.walk(periods) if moment.step < last]
    marked = {violation.replaced for violation in findings.violations}
    marked |= {v.run for v in findings.violations if v.has != v.needs}
    columns = _columns(schedule, moments, marked)
    lanes = ("compute", "copy", *(f"slot {slot}" for slot in range(schedule.ring.slots)))
    head = f"{schedule.policy}, {_many(schedule.ring.modules, 'module')}, "
    head += _many(schedule.ring.slots, "slot")
    return "\n\n".join([head, *_blocks(lanes, columns), LEGEND])


LEGEND = "[m] read by its run   >m arriving   m there   ! violates a property"


def show_violation(findings: Findings) -> str:
    """Every property with its verdict, the moments that matter, and the useless refills."""
    found = {violation.property: violation for violation in findings.violations}
    modules = findings.schedule.ring.modules
    lines = []
    for name in PROPERTIES:
        if name in found:
            lines.append(f"{name:<10} VIOLATED  {found[name].sentence}")
            lines += [f"{'':<10}   {word:<9} {text}" for word, text in _marks(found[name], modules)]
        else:
            lines.append(f"{name:<10} holds")
    shown = [
        f"{'thrift':<10} lint      {_useless(lint, modules)}"
        for lint in findings.lints[:MOST_LINTS]
    ]
    more = len(findings.lints) - MOST_LINTS
    if more > 0:
        shown.append(f"{'':<10}           and {more} more")
    return "\n".join(lines + (shown or [f"{'thrift':<10} holds"]))


MOST_LINTS = 5


def _useless(lint: Lint, modules: int) -> str:
    # A lint holds in every pass of its kind, so the pass it was first seen in says nothing.
    return f"{lint.refill.text(modules).partition(', ')[2] or 'preload'}: {lint.sentence}"


def _marks(violation: Violation, modules: int) -> Iterable[tuple[str, str]]:
    for word in ("brought", "replaced", "run"):
        position = getattr(violation, word)
        if position is not None:
            yield word, violation.trace[position].text(modules)


def _columns(
    schedule: Schedule, moments: Sequence[Moment], marked: set[int | None]
) -> list[Column]:
    holds = [EMPTY] * schedule.ring.slots
    columns: list[Column] = []
    position = 0
    while position < len(moments):
        end = position + 1
        key = (moments[position].half, moments[position].step)
        while end < len(moments) and (moments[end].half, moments[end].step) == key != (RUN, key[1]):
            end += 1
        columns.append(_column(schedule, moments, position, end, holds, marked))
        position = end
    return columns


def _column(
    schedule: Schedule,
    moments: Sequence[Moment],
    start: int,
    end: int,
    holds: list[int],
    marked: set[int | None],
) -> Column:
    first = moments[start]
    module = first.step % schedule.ring.modules
    heading = first.half if first.half in (PRELOAD, ENTER, LEAVE) else f"{first.half} {module}"
    compute, copies, arriving, wrong = "", [], set(), set()
    for position in range(start, end):
        moment = moments[position]
        if position in marked:
            wrong.add(moment.slot)
        if moment.half == RUN:
            compute = str(moment.module)
        else:
            copies.append(str(moment.module))
            holds[moment.slot] = moment.module
            arriving.add(moment.slot)
    cells = [compute, " ".join(copies)]
    for slot, held in enumerate(holds):
        cell = "-" if held == EMPTY else str(held)
        if first.half == RUN and slot == first.slot:
            cell = f"[{cell}]"
        elif slot in arriving:
            cell = f">{cell}"
        cells.append(cell + "!" * (slot in wrong))
    return Column(heading, tuple(cells))


def _blocks(lanes: Sequence[str], columns: Sequence[Column]) -> Iterable[str]:
    """The columns, cut into blocks that fit the width."""
    left = max(map(len, lanes)) + 2
    block: list[Column] = []
    width = left
    for column in columns:
        size = _width(column)
        if block and width + size > WIDTH:
            yield _block(lanes, block, left)
            block, width = [], left
        block.append(column)
        width += size
    yield _block(lanes, block, left)


def _width(column: Column) -> int:
    return max(len(column.heading), *map(len, column.cells)) + 2


def _block(lanes: Sequence[str], columns: Sequence[Column], left: int) -> str:
    rows = [("", [column.heading for column in columns])]
    rows += [(lane, [column.cells[row] for column in columns]) for row, lane in enumerate(lanes)]
    lines = []
    for lane, cells in rows:
        parts = [f"{cell:^{_width(c)}}" for cell, c in zip(cells, columns, strict=True)]
        lines.append((lane.ljust(left) + "".join(parts)).rstrip())
    return "\n".join(lines)


def _many(count: int, word: str) -> str:
    return f"{count} {word}" + "s" * (count != 1)
