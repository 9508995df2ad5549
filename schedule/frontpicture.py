"""A front as SVG: memory against pass time, a panel a workload.

What is planned is a line with a dot a plan, ``slot_local`` another one, and what no schedule can do
is shaded. At one budget the plan is highlighted, and what else fits there is marked and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from schedule.costs import Workload
from schedule.front import Front, undominated
from schedule.plan import Option, Plan
from schedule.plantext import purpose, subject
from schedule.scale import Axis, axis, spread
from schedule.spoken import GIB, MIB, digits, milliseconds, percent, size
from schedule.svg import INK, PAPER, STYLE, line, plain, rect, shape, tag, text

WIDTH, LEFT, RIGHT = 960, 76, 330
"""Pixels: of the page, and of it beside the panels; on the right are the names of the marks."""
TOP, ALONE, HEIGHT, GAP, FOOT = 92, 380, 270, 66, 112
"""Above the first panel; a panel's height, if there is one, or more; below each, and below all."""
ROW = 17
"""Between the names of two marks."""
ROOM = 23
"""Characters for the names of a mark."""

PLANNED, LOCAL = "#117733", "#cc6633"

OWN = f"""<style>
.axis {{ stroke: {INK}; fill: none; }}
.grid {{ stroke: #e4e4e4; }}
.planned {{ fill: none; stroke: {PLANNED}; stroke-width: 2.5; }}
.plan {{ fill: {PLANNED}; }}
.chosen {{ fill: {PAPER}; stroke: {PLANNED}; stroke-width: 4; }}
.local {{ fill: none; stroke: {LOCAL}; stroke-width: 2; stroke-dasharray: 7 4; }}
.point {{ fill: {LOCAL}; }}
.other {{ fill: {PAPER}; stroke: {INK}; stroke-width: 1.5; }}
.forbidden {{ fill: url(#never); stroke: none; }}
.edge-of {{ fill: none; stroke: #777777; stroke-width: 1.5; }}
.budget {{ stroke: {INK}; stroke-width: 1.5; stroke-dasharray: 3 3; }}
.leader {{ fill: none; stroke: #cccccc; }}
.tick {{ font-size: 12px; text-anchor: end; }}
.under {{ font-size: 12px; text-anchor: middle; }}
.strong {{ font-weight: bold; }}
</style>
<defs><pattern id="never" width="6" height="6" patternUnits="userSpaceOnUse" \
patternTransform="rotate(45)"><rect width="6" height="6" fill="#eeeeee"/>\
<rect width="1.5" height="6" fill="#bbbbbb"/></pattern></defs>"""

Parts = Iterator[str]


@dataclass(frozen=True, slots=True)
class Panel:
    """One workload's. x: of memory, in bytes; y: of time, in nanoseconds."""

    front: Front
    plan: Plan
    workload: Workload
    x: Axis
    y: Axis

    def place(self, one: Plan | Option) -> tuple[float, float]:
        return self.x.at(one.memory), self.y.at(one.times[self.workload.name])

    def steps(self, places: Sequence[tuple[float, float]]) -> str:
        """A path on which each point holds until the next, and the last to the edge."""
        (x, y), *rest = places
        return f"M{x} {y}" + "".join(f"H{x}V{y}" for x, y in rest) + f"H{self.x.end}"


def picture(front: Front, chosen: Plan | None = None) -> str:
    """The whole SVG. chosen: the plan that is highlighted; else the one in the middle."""
    plan = chosen or front.plans[len(front.plans) // 2]
    front = replace(front, plans=undominated([*front.plans, plan]))
    costs = plan.costs
    height = ALONE if len(costs.workloads) == 1 else HEIGHT
    panels = [
        _panel(front, plan, workload, TOP + number * (height + GAP), height)
        for number, workload in enumerate(costs.workloads)
    ]
    below = TOP + len(panels) * (height + GAP)
    whole = below + FOOT - GAP
    parts = [
        tag("title", plain(f"{subject(costs)}, {purpose(costs, plan.captured)}")),
        STYLE,
        OWN,
        rect(0.5, 0.5, WIDTH - 1, whole - 1, "page", rx=8),
        *_head(plan),
        *(part for panel in panels for part in _drawn(panel)),
        *_legend(below, chosen is not None),
    ]
    box = f"0 0 {WIDTH} {whole}"
    names = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "viewBox": box}
    return tag("svg", "\n".join(["", *parts, ""]), width=WIDTH, height=whole, **names) + "\n"


def _panel(front: Front, plan: Plan, workload: Workload, top: int, height: int) -> Panel:
    name = workload.name
    marked: list[Plan | Option] = [plan, *front.plans, *front.slot_local, *plan.others]
    times = [*(one.times[name] for one in marked), *(one.times[name] for one in front.edges)]
    memory = [*(one.memory for one in marked), plan.budget, *(one.budget for one in front.edges)]
    shown = [min(one, plan.costs.whole) for one in memory]
    return Panel(
        front,
        plan,
        workload,
        axis(shown, LEFT, WIDTH - RIGHT),
        axis(times, top + height, top, log=True),
    )


def _head(plan: Plan) -> Parts:
    costs = plan.costs
    yield text(24, 34, _cut(subject(costs), 76), "title")
    yield text(24, 56, _cut(purpose(costs, plan.captured), 110), "said")


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 3]}..."


def _drawn(panel: Panel) -> Parts:
    yield from _axes(panel)
    yield from _forbidden(panel)
    budget = panel.x.at(panel.plan.budget)
    yield line(budget, panel.y.start, budget, panel.y.end, "budget")
    marks = sorted(_named(panel), key=lambda mark: -mark.time)
    yield from _column(panel, marks)
    local = [panel.place(one) for one in panel.front.slot_local]
    yield tag("path", d=panel.steps(local), class_="local")
    for x, y in local:
        yield rect(x - 3, y - 3, 6, 6, "point")
    yield tag(
        "path", d=panel.steps([panel.place(one) for one in panel.front.plans]), class_="planned"
    )
    for plan in panel.front.plans:
        yield _dot(panel, plan, 4, "plan")
    for mark in marks:
        if mark.class_ == "said":
            x, y = mark.x, mark.y
            yield shape("other", PAPER, (x, y - 5.5), (x + 5.5, y + 4), (x - 5.5, y + 4))
    yield _dot(panel, panel.plan, 6.5, "chosen")


def _axes(panel: Panel) -> Parts:
    x, y = panel.x, panel.y
    unit, name = (GIB, "GiB") if panel.plan.costs.whole >= GIB else (MIB, "MiB")
    for tick in y.ticks(8):
        yield line(x.start, y.at(tick), x.end, y.at(tick), "grid")
        yield text(x.start - 8, y.at(tick) + 4, f"{tick / 1e6:,g}", "tick")
    scaled = Axis(x.low / unit, x.high / unit, x.start, x.end)
    for tick in scaled.ticks(8):
        yield line(scaled.at(tick), y.start, scaled.at(tick), y.end, "grid")
        yield text(scaled.at(tick), y.start + 17, f"{tick:,g}", "under")
    yield tag("path", d=f"M{x.start} {y.end}V{y.start}H{x.end}", class_="axis")
    yield text(x.start - 52, y.end - 10, f"{_cut(panel.workload.name, 60)}, ms a pass", "strong")
    yield text((x.start + x.end) / 2, y.start + 36, f"{name} on the device", "under")


def _forbidden(panel: Panel) -> Parts:
    """Between two budgets the bound is at least that of the larger one: steps are no less true."""
    name, edges = panel.workload.name, panel.front.edges
    points = [(panel.x.at(one.budget), panel.y.at(one.times[name])) for one in edges]
    (x, y), *rest = points
    path = f"M{x} {y}" + "".join(f"V{y}H{x}" for x, y in rest)
    yield tag("path", d=f"{path}H{panel.x.end}V{panel.y.start}H{points[0][0]}Z", class_="forbidden")
    yield tag("path", d=f"{path}H{panel.x.end}", class_="edge-of")


def _dot(panel: Panel, plan: Plan, radius: float, class_: str) -> str:
    x, y = panel.place(plan)
    return tag("circle", _told(panel, plan), cx=x, cy=y, r=radius, class_=class_)


def _told(panel: Panel, plan: Plan) -> str:
    name = panel.workload.name
    time, bound = plan.times[name], plan.bounds[name]
    gap = f", {percent(float(time / bound) - 1)} above the bound" if bound else ""
    return tag("title", plain(f"{size(plan.memory)}: {milliseconds(time)}{gap}"))


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands beside a panel, where it points to, and how it looks."""

    time: Fraction
    words: str
    x: float
    y: float
    class_: str


def _column(panel: Panel, marks: Sequence[Mark]) -> Parts:
    """On the right what the marks are, in their order, with lines to them."""
    column, bend = panel.x.end + 34, panel.x.end + 10
    heights = spread([mark.y for mark in marks], ROW, panel.y.end + 8, panel.y.start - 4)
    for mark, height in zip(marks, heights, strict=True):
        yield tag("path", d=f"M{mark.x} {mark.y}H{bend}L{column - 5} {height}", class_="leader")
        yield text(column, height + 4, f"{_ms(mark.time)}  {mark.words}", mark.class_)
    yield text(column, panel.y.end - 10, f"in {size(panel.plan.budget)}, ms:", "strong")


def _named(panel: Panel) -> Iterator[Mark]:
    plan, name = panel.plan, panel.workload.name
    x, y = panel.place(plan)
    yield Mark(plan.times[name], "planned", x, y, "strong")
    bound = plan.bounds[name]
    yield Mark(bound, "lower bound", panel.x.at(plan.budget), panel.y.at(bound), "small")
    together: dict[Fraction, list[Option]] = {}
    for one in plan.others:
        together.setdefault(one.times[name], []).append(one)
    for time, options in together.items():
        x, y = panel.place(options[0])
        yield Mark(time, _names([_short(one.name) for one in options]), x, y, "said")


def _names(names: Sequence[str]) -> str:
    """As many as there is room for."""
    shown = 1
    while shown < len(names) and len(", ".join(names[: shown + 1])) <= ROOM:
        shown += 1
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return _cut(", ".join(names[:shown]), ROOM) + more


def _ms(time: Fraction) -> str:
    return digits(float(time) / 1e6)


def _short(name: str) -> str:
    """A name and its numbers, without the words between: "double_buffer 6", "vLLM 8,2,1"."""
    first, *rest = name.split(",")
    numbers = [word for part in rest for word in part.split() if word.isdigit()]
    return f"{first} {','.join(numbers)}".rstrip()


def _legend(top: int, asked: bool) -> Parts:
    x, y = 24, top + 4
    yield line(x, y, x + 30, y, "planned")
    yield tag("circle", cx=x + 15, cy=y, r=4, class_="plan")
    yield text(x + 38, y + 4, "planned, verified", "small")
    x += 158
    yield line(x, y, x + 30, y, "local")
    yield rect(x + 12, y - 3, 6, 6, "point")
    yield text(x + 38, y + 4, "slot_local (vLLM), any number of slots", "small")
    x += 304
    yield rect(x, y - 8, 28, 16, "forbidden")
    yield text(x + 36, y + 4, "no schedule can", "small")
    x += 150
    yield line(x, y - 8, x, y + 8, "budget")
    yield text(x + 8, y + 4, "the budget" if asked else "one of the budgets", "small")
    x += 142
    yield shape("other", PAPER, (x, y - 5.5), (x + 5.5, y + 4), (x - 5.5, y + 4))
    yield text(x + 12, y + 4, "what else fits in it", "small")
    numbers = "Beside a policy: its slots; beside vLLM: group size, number in group, prefetch step."
    yield text(24, y + 26, numbers, "small")
