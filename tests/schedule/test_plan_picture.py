"""The picture of a front: parsed, and compared with what it shows; no two texts collide."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from schedule import costsfile
from schedule.costs import Costs, Module, Workload
from schedule.front import front, undominated
from schedule.frontpicture import LEFT, RIGHT, WIDTH, picture
from schedule.plan import Planner
from schedule.spoken import milliseconds, size
from tests.schedule.small_costs import MB, costs
from tests.schedule.test_timeline_picture import SVG, of_class, words

ROOT = Path(__file__).parent.parent.parent


def drawn(model: Costs, budget: int | None = None, points: int = 5) -> Element:
    planner = Planner(model)
    plan = None if budget is None else planner.plan(budget)
    return ElementTree.fromstring(picture(front(planner, points), plan))


def number(element: Element, name: str) -> float:
    return float(element.get(name, ""))


def panels(root: Element) -> Iterator[tuple[float, float]]:
    """Top and bottom of each: what is in the axes' path."""
    for one in of_class(root, "axis"):
        found = re.fullmatch(r"M[\d.]+ ([\d.]+)V([\d.]+)H[\d.]+", one.get("d", ""))
        assert found
        yield float(found[1]), float(found[2])


def test_a_panel_a_workload_with_a_dot_a_plan() -> None:
    planner = Planner(costs())
    found, plan = front(planner, 5), planner.plan(700 * MB)
    root = ElementTree.fromstring(picture(found, plan))
    assert len(list(panels(root))) == 2
    shown = undominated([*found.plans, plan])
    dots = of_class(root, "plan")
    assert len(dots) == 2 * len(shown) + 1  # and the legend's
    told = [one.findtext(f"{SVG}title", "") for one in dots[: len(shown)]]
    assert [one.partition(",")[0] for one in told] == [
        f"{size(one.memory)}: {milliseconds(one.times['decode'])}" for one in shown
    ]
    assert told[-1].endswith("0.0% above the bound")
    xs = [number(one, "cx") for one in dots[: len(shown)]]
    assert xs == sorted(xs)
    assert len(of_class(root, "forbidden")) == len(of_class(root, "budget")) == 3
    points = of_class(root, "point")
    assert len(points) == 2 * len(found.slot_local) + 1
    said = words(root)
    assert said[:2] == ["small on a test", "planned for decode 64 : prefill 1, eager passes"]
    assert {"decode, ms a pass", "prefill, ms a pass", "the budget"} <= set(said)
    assert said.count("in 667.6 MiB, ms:") == 2


def test_the_plan_is_highlighted_and_all_else_is_named() -> None:
    planner = Planner(costs())
    plan = planner.plan(700 * MB)
    root = ElementTree.fromstring(picture(front(planner, 5), plan))
    chosen = of_class(root, "chosen")
    assert len(chosen) == 2
    assert {number(one, "cx") for one in chosen} == {number(chosen[0], "cx")}
    for name in ("decode", "prefill"):
        time = f"{milliseconds(plan.times[name]).removesuffix(' ms')}  planned"
        bound = f"{milliseconds(plan.bounds[name]).removesuffix(' ms')}  lower bound"
        assert time in words(root)
        assert bound in words(root)
    distinct = sum(len({one.times[name] for one in plan.others}) for name in plan.times)
    assert len(of_class(root, "other")) == distinct + 1
    for one in plan.others:
        family, *_ = one.name.split(",")
        shown = any(family in text for text in words(root))
        assert shown or any(re.search(r"and \d+ more", text) for text in words(root))


def test_a_lower_line_is_a_shorter_time() -> None:
    """The chosen plan is below what takes longer, and above the bound or at it."""
    root = drawn(costs(), 700 * MB)
    (top, bottom), _ = panels(root)
    (first, *_) = of_class(root, "chosen")
    others = [
        max(float(pair.split(",")[1]) for pair in one.get("points", "").split())
        for one in of_class(root, "other")[:-1]
    ]
    assert all(top <= number(first, "cy") <= bottom for _ in others)
    in_panel = [y for y in others if top <= y <= bottom + 4]
    assert min(in_panel) < number(first, "cy")


def test_without_a_budget_one_in_the_middle_is_shown() -> None:
    root = drawn(costs())
    assert "one of the budgets" in words(root)
    assert "the budget" not in words(root)
    assert len(of_class(root, "chosen")) == 2


def test_steps_claim_no_more_than_is_known() -> None:
    """Between two budgets a plan holds that needs the smaller, and the bound of the larger."""
    root = drawn(costs(), 700 * MB)
    for one in of_class(root, "edge-of"):
        assert re.match(r"M[\d.]+ [\d.]+V[\d.]+H[\d.]+V", one.get("d", ""))
    for one in of_class(root, "planned")[:2]:
        assert re.match(r"M[\d.]+ [\d.]+H[\d.]+V", one.get("d", ""))


def test_names_are_in_the_order_of_their_times() -> None:
    for budget in (600 * MB, 850 * MB):
        root = drawn(costs(), budget)
        column = WIDTH - RIGHT + 34
        named = [one for one in root.iter(f"{SVG}text") if number(one, "x") == column]
        assert len(named) > 8
        times = [re.match(r"([\d,.]+)  ", "".join(one.itertext())) for one in named]
        read = [None if found is None else float(found[1].replace(",", "")) for found in times]
        second = [number(one, "y") for one, time in zip(named, read, strict=True) if time is None]
        for start, end in ((second[0], second[1]), (second[1], 10**4)):
            rows = sorted(
                (number(one, "y"), time)
                for one, time in zip(named, read, strict=True)
                if time is not None and start < number(one, "y") < end
            )
            assert [time for _, time in rows] == sorted((time for _, time in rows), reverse=True)


def test_a_budget_above_the_model_does_not_stretch_the_axis() -> None:
    root = drawn(costs(), 10**10)
    assert number(of_class(root, "chosen")[0], "cx") > 0.8 * (WIDTH - RIGHT)


# ---- what is on the page


def long_names() -> Costs:
    """Many plans at nearly the same time, long names and large numbers."""
    model = costs((900, 100, 800, 800, 500, 100), (900,) * 6, (9000,) * 6)
    modules = tuple(
        Module(f"model.language_model.layers.{at}.mlp", one.parts)
        for at, one in enumerate(model.modules)
    )
    return replace(model, modules=modules, model="m" * 120, device="d" * 90)


def many_workloads() -> Costs:
    model = costs()
    more = (Workload(f"{'w' * 80}{at}", (at + 1,) * 4, (0,) * 5, 1) for at in range(3))
    return replace(model, workloads=(*model.workloads, *more))


MODELS = {
    "small": (costs(), 700 * MB),
    "no budget": (costs(), None),
    "all fits": (costs(), 10**10),
    "least": (costs(), 450 * MB),
    "long": (long_names(), 2000 * MB),
    "copies alone": (costs(decode=(0,) * 4, prefill=(0,) * 4), 700 * MB),
    "compute alone": (costs((1, 1, 1, 1), (90,) * 4, (900,) * 4), 52 * MB),
    "one module": (costs((100,), (1,), (1,)), None),
    "workloads": (many_workloads(), 700 * MB),
    "equal": (costs((100,) * 6, (3,) * 6, (30,) * 6), 400 * MB),
}
CASES = pytest.mark.parametrize(("model", "budget"), list(MODELS.values()), ids=list(MODELS))
WIDTHS = {"title": 11.5, "said": 7.0, "strong": 8.0, "small": 6.3, "tick": 7.0, "under": 7.0}
"""By class, pixels a character: those of a wide font, DejaVu Sans."""


def box(text: Element) -> tuple[float, float, float, float]:
    kind = text.get("class", "")
    content = "".join(text.itertext())
    wide = WIDTHS[kind] * len(content)
    x, y = number(text, "x"), number(text, "y")
    left = {"tick": x - wide, "under": x - wide / 2}.get(kind, x)
    return left, y - 10, left + wide, y + 2


@CASES
def test_no_two_texts_collide_and_all_are_on_the_page(model: Costs, budget: int | None) -> None:
    root = drawn(model, budget, 4)
    height = number(root, "height")
    boxes = [(box(one), one) for one in root.iter(f"{SVG}text")]
    for (left, top, right, bottom), _ in boxes:
        assert left >= 0
        assert right <= WIDTH
        assert top >= 0
        assert bottom <= height
    for (a, one), (b, other) in itertools.combinations(boxes, 2):
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, ("".join(one.itertext()), "".join(other.itertext()))


@CASES
def test_all_that_is_drawn_is_in_its_panel(model: Costs, budget: int | None) -> None:
    root = drawn(model, budget, 4)
    tops = list(panels(root))
    for one in root.iter(f"{SVG}circle"):
        x, y = number(one, "cx"), number(one, "cy")
        legend = y > tops[-1][1] + 40
        assert legend or LEFT <= x <= WIDTH - RIGHT
        assert legend or any(top <= y <= bottom for top, bottom in tops)
    for name in ("planned", "local", "edge-of"):
        for one in of_class(root, name):
            numbers = [float(each) for each in re.findall(r"[\d.]+", one.get("d", ""))]
            assert all(0 <= each <= number(root, "height") for each in numbers[1::2])


def test_it_stands_alone_and_is_ascii() -> None:
    model = replace(costs(), model='<b> & "c" \u00e4', device="x\u00df")
    planner = Planner(model)
    text = picture(front(planner, 3), None)
    assert text.isascii()
    root = ElementTree.fromstring(text)
    assert words(root)[0] == '<b> & "c" \u00e4 on x\u00df'
    assert not list(root.iter(f"{SVG}image")) + list(root.iter(f"{SVG}script"))
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    used = set(re.findall(r"url\(([^)]*)\)", text))
    assert {one[1:] for one in used} <= {one.get("id") for one in root.iter() if one.get("id")}
    page = of_class(root, "page")[0]
    assert number(page, "width") == number(root, "width") - 1


def test_the_picture_in_the_readme_is_what_plan_draws() -> None:
    """Make it anew: python -m schedule plan --costs docs/costs.json --memory 2.5GiB --points 10
    --plot docs/plan.svg."""
    planner = Planner(costsfile.read(ROOT / "docs" / "costs.json"))
    file = ROOT / "docs" / "plan.svg"
    assert f"({file.relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="ascii")
    drawing = picture(front(planner, 10), planner.plan(5 << 29))
    assert file.read_text(encoding="ascii") == drawing
