"""A schedule as lanes over boundaries, for people.

One column a boundary; the lanes are the compute stream, the copy stream, and every slot's
content. In a slot's lane ``[2]`` is module 2 being read by its run, ``>2`` module 2 arriving,
``2`` module 2 being there. Between the streams are the fences: ``v2`` is a copy that waits for
module 2's run, ``^2`` a run that waits for module 2's copy; a wait that orders nothing new is
left out. An ``!`` marks what violates a property: a refill that destroys what is still needed, a
run that reads another module's weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from schedule.drawing import Drawing
from schedule.ring import EMPTY
from schedule.table import ENTER, LEAVE, PRELOAD, RUN
from schedule.verifier import PROPERTIES, Findings, Lint, Violation

WIDTH = 100


@dataclass(frozen=True, slots=True)
class Column:
    """One boundary: its heading, and a cell for compute, the fences, copy and each slot."""

    heading: str
    cells: tuple[str, ...]


def show(drawing: Drawing) -> str:
    """The lanes of a drawing."""
    slots = range(drawing.findings.schedule.ring.slots)
    lanes = ("compute", "fence", "copy", *(f"slot {slot}" for slot in slots))
    head = f"{drawing.title}: {drawing.verdict}"
    return "\n\n".join([head, *_blocks(lanes, _columns(drawing)), LEGEND])


LEGEND = """\
[m] read by its run   >m arriving   m there   ! violates a property
vm waits for the run of m   ^m waits for the copy of m"""


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


def _columns(drawing: Drawing) -> list[Column]:
    moments = drawing.moments
    marked = {mark.moment for mark in drawing.marks}
    fences: dict[int, list[str]] = {}
    for earlier, later in drawing.placed.fences:
        arrow = "^" if moments[later].half == RUN else "v"
        fences.setdefault(later, []).append(f"{arrow}{moments[earlier].module}")
    holds = [EMPTY] * drawing.findings.schedule.ring.slots
    columns: list[Column] = []
    position = 0
    while position < len(moments):
        end = position + 1
        key = (moments[position].half, moments[position].step)
        while end < len(moments) and (moments[end].half, moments[end].step) == key != (RUN, key[1]):
            end += 1
        columns.append(_column(drawing, position, end, holds, marked, fences))
        position = end
    return columns


def _column(
    drawing: Drawing,
    start: int,
    end: int,
    holds: list[int],
    marked: Set[int],
    fences: Mapping[int, Sequence[str]],
) -> Column:
    first = drawing.moments[start]
    module = first.step % drawing.findings.schedule.ring.modules
    heading = first.half if first.half in (PRELOAD, ENTER, LEAVE) else f"{first.half} {module}"
    compute, copies, arriving, wrong = "", [], set(), set()
    waits: list[str] = []
    for position in range(start, end):
        moment = drawing.moments[position]
        waits += fences.get(position, ())
        if position in marked:
            wrong.add(moment.slot)
        if moment.half == RUN:
            compute = str(moment.module)
        else:
            copies.append(str(moment.module))
            holds[moment.slot] = moment.module
            arriving.add(moment.slot)
    cells = [compute, " ".join(waits), " ".join(copies)]
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
    block: list[tuple[Column, int]] = []
    width = left
    for column in columns:
        size = _width(column)
        if block and width + size > WIDTH:
            yield _block(lanes, block, left)
            block, width = [], left
        block.append((column, size))
        width += size
    yield _block(lanes, block, left)


def _width(column: Column) -> int:
    return max(len(column.heading), *map(len, column.cells)) + 2


def _block(lanes: Sequence[str], columns: Sequence[tuple[Column, int]], left: int) -> str:
    """Columns, each with its width, below one another's lanes."""
    rows = [("", [f"{column.heading:^{width}}" for column, width in columns])]
    for row, lane in enumerate(lanes):
        rows.append((lane, [f"{column.cells[row]:^{width}}" for column, width in columns]))
    lines = [(lane.ljust(left) + "".join(parts)).rstrip() for lane, parts in rows]
    return "\n".join(lines)
