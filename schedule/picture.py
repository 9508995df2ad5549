"""A drawing as SVG: streams and slots as lanes, content coloured by module, fences as arrows.

What is wrong is red: the copy that overwrites what is still needed, a cross on what it destroys,
and the run that reads another module's weights. The text is plain ASCII and needs no font, script
or style from elsewhere; it has a background of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schedule.colours import colours
from schedule.drawing import Drawing, caption
from schedule.labels import label
from schedule.operations import COMPUTE, COPY, Run
from schedule.placed import ARRIVING, COPY_TIME, EMPTY_SLOT, READ, RUN_TIME, Content
from schedule.properties import OWNERSHIP
from schedule.ring import EMPTY
from schedule.svg import STYLE, line, plain, rect, shape, tag, text

MOST = 1200
"""Pixels of time in a row; a longer drawing goes on in the next one."""

WIDE, NARROW = 52, 30
"""Pixels a unit of time: where all fits into one row, and where it does not."""

LEFT, RIGHT, HEAD, LEAST = 84, 28, 92, 660
STREAM, GAP, SLOT, SPACE = 36, 34, 34, 10
"""Heights: a stream's lane, the gap below it, a slot's lane, the gap below that."""

MOST_CAPTIONS = 6

Parts = Iterator[str]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page: the times from ``start`` to ``end``, from the height ``top`` down."""

    start: int
    end: int
    top: int
    unit: int

    def x(self, time: int) -> int:
        """Where a time is; at the row's edge if it is in another row."""
        return LEFT + (min(max(time, self.start), self.end) - self.start) * self.unit

    def stream(self, name: str) -> int:
        """The top of a stream's lane."""
        return self.top + (0 if name == COMPUTE else STREAM + GAP)

    def slot(self, number: int) -> int:
        """The top of a slot's lane."""
        return self.top + 2 * (STREAM + GAP) + number * (SLOT + SPACE)


@dataclass(frozen=True, slots=True)
class Page:
    """The rows, all but the last one of the same length."""

    drawing: Drawing
    rows: tuple[Row, ...]
    paint: Sequence[str]

    def during(self, start: int, end: int) -> Sequence[Row]:
        """The rows that show some of these times."""
        length = self.rows[0].end
        return self.rows[start // length : -(-end // length)]


def picture(drawing: Drawing) -> str:
    """The whole SVG."""
    ring = drawing.findings.schedule.ring
    paint = colours(ring.modules, drawing.contents)
    page = Page(drawing, tuple(_rows(drawing.placed.end, ring.slots)), paint)
    below = page.rows[-1].slot(ring.slots) + 22
    # What happens again in a later pass has the number that it had.
    captions = list(dict.fromkeys(caption(mark) for mark in drawing.marks))
    said = list(_captions(captions, below))
    below += 26 * min(len(captions), MOST_CAPTIONS + 1)
    height, width = below + 62, max(LEAST, *(row.x(row.end) + RIGHT for row in page.rows))
    parts = [
        tag("title", plain(drawing.title)),
        STYLE,
        rect(0.5, 0.5, width - 1, height - 1, "page", rx=8),
        *_head(drawing),
        *(part for row in page.rows for part in _lanes(drawing, row)),
        *_contents(page),
        *_boxes(page),
        *_fences(page),
        *_marks(page, captions),
        *said,
        *_legend(below, paint[0], bool(drawing.marks)),
    ]
    box = f"0 0 {width} {height}"
    names = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "viewBox": box}
    return tag("svg", "\n".join(["", *parts, ""]), width=width, height=height, **names) + "\n"


def _rows(end: int, slots: int) -> Iterator[Row]:
    """The rows that so much time needs, of equal length."""
    unit = WIDE if end * WIDE <= MOST else NARROW
    count = -(-end * unit // MOST)
    span = -(-end // count)
    height = Row(0, 0, 0, unit).slot(slots) + HEAD // 2
    for number in range(-(-end // span)):
        last = min((number + 1) * span, end)
        yield Row(number * span, last, HEAD + number * height, unit)


def _head(drawing: Drawing) -> Parts:
    verdict = tag("tspan", drawing.verdict, class_=drawing.verdict.lower())
    yield tag(
        "text",
        plain(f"{drawing.title}: "),
        verdict,
        x=24,
        y=36,
        class_="title",
    )


def _lanes(drawing: Drawing, row: Row) -> Parts:
    """The lanes, their names, and where each pass begins."""
    slots = range(drawing.findings.schedule.ring.slots)
    lanes = [("compute", row.stream(COMPUTE), STREAM), ("copy", row.stream(COPY), STREAM)]
    lanes += [(f"slot {slot}", row.slot(slot), SLOT) for slot in slots]
    for name, top, height in lanes:
        yield rect(LEFT, top, row.x(row.end) - LEFT, height, "band", rx=3)
        yield text(LEFT - 12, top + height / 2 + 5, name, "lane")
    bottom = row.slot(len(slots)) - SPACE
    for number, (start, _) in enumerate(drawing.passes):
        if row.start <= start < row.end:
            x = row.x(start)
            yield line(x, row.top - 14, x, bottom + 6, "pass")
            yield text(x + 4, row.top - 8, f"pass {number}", "small")
    if row.start == 0:
        if row.unit == WIDE:  # else there is no room before the pass
            yield text(LEFT, row.top - 8, "preload", "small")
        yield text(row.x(row.end) - 62, row.top - 8, "time", "small")
        yield line(row.x(row.end) - 34, row.top - 12, row.x(row.end), row.top - 12, "fence")


def _boxes(page: Page) -> Parts:
    """Copies and runs, on their streams."""
    modules = page.drawing.findings.schedule.ring.modules
    for number, (operation, boundary, start, end) in enumerate(page.drawing.placed.boxes):
        for row in page.during(start, end):
            x, top = row.x(start), row.stream(operation.stream)
            width = row.x(end) - x
            fill = page.paint[operation.module]
            yield tag(
                "g",
                tag("title", plain(f"{label(operation)} ({boundary.text(modules)})")),
                rect(x + 1, top, width - 2, STREAM, "edge", rx=3, fill=fill),
                text(x + width / 2, top + STREAM / 2 + 5, f"{operation.module}", "number"),
                class_="run" if isinstance(operation, Run) else "copy",
                data_box=number,
            )


def _contents(page: Page) -> Parts:
    """What the slots hold."""
    slot = old = EMPTY
    for content in page.drawing.contents:
        old, slot = old if slot == content.slot else EMPTY, content.slot
        if content.phase != EMPTY_SLOT:
            for row in page.during(content.start, content.end):
                yield tag(
                    "g",
                    *_content(content, old, row, page.paint),
                    class_=f"content {content.phase}",
                    data_slot=content.slot,
                    data_module=content.module,
                )
        old = content.module


def _content(content: Content, old: int, row: Row, paint: Sequence[str]) -> Parts:
    x, top = row.x(content.start), row.slot(content.slot)
    right, bottom = row.x(content.end), top + SLOT
    middle = (x + right) / 2
    if content.phase == ARRIVING:
        # It fills the slot from below, and pushes out what was there.
        if old != EMPTY:
            yield shape("gone", paint[old], (x, top), (right, top), (x, bottom))
        yield shape("new", paint[content.module], (x, bottom), (right, top), (right, bottom))
        middle = x + (right - x) * 2 / 3
    else:
        yield rect(x, top, right - x, SLOT, "held", fill=paint[content.module])
    if content.phase == READ:
        yield rect(x + 1.5, top + 1, right - x - 3, SLOT - 2, "frame", rx=3)
    yield text(middle, top + SLOT / 2 + 5, f"{content.module}", "number")


def _fences(page: Page) -> Parts:
    """An arrow to each box from the one that it waits for; faint if that was done before, in
    this timing. One that comes from an earlier row only shows its tip."""
    boxes = page.drawing.placed.boxes
    for earlier, later in page.drawing.placed.fences:
        first, second = boxes[earlier], boxes[later]
        row = page.during(second.start, second.end)[0]
        top, bottom = row.stream(first.operation.stream), row.stream(second.operation.stream)
        # Down from the lower edge of a lane to the upper edge of another one, or up.
        top, bottom = (top + STREAM, bottom) if top < bottom else (top, bottom + STREAM)
        x, end = row.x(first.end) - 5, row.x(second.start) + 6
        if first.end < row.start:
            x, top = end - 18, (top + bottom) // 2
        yield tag(
            "path",
            d=f"M{x} {top}L{end} {bottom}",
            class_="fence" if first.end == second.start else "fence slack",
            data_from=earlier,
            data_to=later,
        )


def _marks(page: Page, captions: Sequence[str]) -> Parts:
    """What is wrong, in red, on the stream and in the slot, with its caption's number."""
    for mark in page.drawing.marks:
        number = captions.index(caption(mark))
        box = page.drawing.placed.boxes[mark.moment]
        draw = _overwrite if mark.property == OWNERSHIP else _misread
        for row in page.during(box.start, box.end):
            x, right = row.x(box.start), row.x(box.end)
            stream, slot = row.stream(box.operation.stream), row.slot(mark.slot)
            yield tag(
                "g",
                rect(x, stream - 1, right - x, STREAM + 2, "red", rx=3),
                *draw(x, right, stream + STREAM, slot),
                *(_badge(x, stream, number) if number < MOST_CAPTIONS else ()),
                class_=f"mark {mark.property}",
                data_box=mark.moment,
            )


def _overwrite(x: int, right: int, stream: int, slot: int) -> Parts:
    """A hatch over what the copy destroys, and a cross at its edge."""
    del stream
    yield shape("hatch", "", (x, slot), (right, slot), (x, slot + SLOT))
    yield rect(x, slot - 1, right - x, SLOT + 2, "red", rx=3)
    for class_ in ("halo", "cross"):
        yield line(x - 11, slot + 6, x + 11, slot + SLOT - 6, class_)
        yield line(x + 11, slot + 6, x - 11, slot + SLOT - 6, class_)


def _misread(x: int, right: int, stream: int, slot: int) -> Parts:
    """A line between the run and what it reads: they are not equal."""
    middle = (x + right) / 2
    yield rect(x, slot, right - x, SLOT, "red", rx=3)
    yield line(middle, stream, middle, slot, "red")
    yield tag("circle", cx=middle, cy=stream + GAP / 2, r=11, class_="dot")
    yield text(middle, stream + GAP / 2 + 6, chr(0x2260), "wrong")


def _badge(x: float, y: float, number: int) -> Parts:
    yield tag("circle", cx=x, cy=y, r=9, class_="dot")
    yield text(x, y + 4, f"{number + 1}", "badge")


def _captions(captions: Sequence[str], top: int) -> Parts:
    for number, said in enumerate(captions[:MOST_CAPTIONS]):
        yield from _badge(LEFT - 22, top + 26 * number, number)
        yield text(LEFT, top + 26 * number + 5, said, "caption")
    if len(captions) > MOST_CAPTIONS:
        more = f"and {len(captions) - MOST_CAPTIONS} more"
        yield text(LEFT, top + 26 * MOST_CAPTIONS + 5, more, "caption")


def _legend(top: int, fill: str, violated: bool) -> Parts:
    """What the shapes mean."""
    x, y, size = 24, top + 8, 18
    yield shape("new", fill, (x, y + size), (x + 26, y), (x + 26, y + size))
    yield text(x + 34, y + 14, "arriving", "small")
    yield rect(x + 100, y, 26, size, "held", fill=fill)
    yield text(x + 134, y + 14, "there", "small")
    yield rect(x + 190, y, 26, size, "held", fill=fill)
    yield rect(x + 191, y + 1, 24, size - 2, "frame", rx=3)
    yield text(x + 224, y + 14, "being read", "small")
    yield line(x + 306, y + size / 2, x + 332, y + size / 2, "fence")
    yield text(x + 340, y + 14, "is waited for by", "small")
    if violated:
        yield line(x + 449, y + 2, x + 463, y + size - 2, "cross")
        yield line(x + 463, y + 2, x + 449, y + size - 2, "cross")
        yield text(x + 474, y + 14, "overwritten while needed", "small")
    scale = f"A number is a module. A run takes {RUN_TIME} units of time here, a copy {COPY_TIME}."
    yield text(x, y + 38, scale, "small")
