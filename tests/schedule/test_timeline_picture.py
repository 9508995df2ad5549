"""The SVG: parsed, and compared with the schedule that it shows."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from schedule import Ring, check, policies
from schedule.colours import PALETTE, colours
from schedule.drawing import Drawing, draw
from schedule.operations import Run
from schedule.picture import LEFT, MOST, MOST_CAPTIONS, picture
from schedule.placed import ARRIVING, EMPTY_SLOT, READ, WHOLE
from schedule.svg import RED, plain, tag
from tests.schedule.test_timeline_placed import drawings

ROOT = Path(__file__).parent.parent.parent
SVG = "{http://www.w3.org/2000/svg}"


def drawn(name: str, modules: int, slots: int, passes: int = 1) -> Drawing:
    return draw(check(policies.NAMED[name](Ring(modules, slots))), passes)


def parse(drawing: Drawing) -> Element:
    return ElementTree.fromstring(picture(drawing))


def of_class(root: Element, name: str) -> list[Element]:
    return [one for one in root.iter() if name in one.get("class", "").split()]


def fills(element: Element) -> list[str]:
    return [one.get("fill", "") for one in element if one.get("fill")]


def words(root: Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


def span(element: Element) -> tuple[float, float]:
    """From where to where on the page a box's or a content's shapes reach."""
    xs: list[float] = []
    for one in element:
        if one.tag == f"{SVG}polygon":
            xs += [float(pair.split(",")[0]) for pair in one.get("points", "").split()]
        elif one.tag == f"{SVG}rect" and one.get("class") in ("held", "edge"):
            x = float(one.get("x", ""))
            xs += [x, x + float(one.get("width", ""))]
    return min(xs), max(xs)


def test_modular_at_3_2_shows_the_overwrite_and_the_wrong_read() -> None:
    root = parse(drawn("modular", 3, 2))
    assert len(of_class(root, "run")) == 3
    assert len(of_class(root, "copy")) == 5
    assert len(of_class(root, "fence")) == 6 + 2  # and the legend's, and that of the time
    marks = of_class(root, "mark")
    assert [(one.get("class"), one.get("data-box")) for one in marks] == [
        ("mark ownership", "5"),
        ("mark identity", "6"),
    ]
    assert len(of_class(marks[0], "cross")) == 2
    assert len(of_class(marks[0], "hatch")) == 1
    assert [one.text for one in of_class(marks[1], "wrong")] == ["\u2260"]
    overwriting = next(one for one in of_class(root, "copy") if one.get("data-box") == "5")
    wrong = next(one for one in of_class(root, "run") if one.get("data-box") == "6")
    # What the run reads has another colour than the run: that is the bug.
    read = [c for c in of_class(root, READ) if c.get("data-slot") == "0"]
    assert [c.get("data-module") for c in read] == ["0", "0"]
    assert fills(read[1]) == fills(overwriting) != fills(wrong)
    assert span(read[1])[0] == span(wrong)[0] - 1
    assert "1module 0 is copied over module 2 in slot 0, and module 2 has yet to run" in "".join(
        words(root)
    )
    assert words(root)[0] == "modular, 3 modules, 2 slots: VIOLATED"


def test_the_destroyed_module_is_seen_under_the_one_that_replaces_it() -> None:
    root = parse(drawn("modular", 3, 2))
    (old,) = [c for c in of_class(root, WHOLE) if c.get("data-module") == "2"]
    arrivals = [c for c in of_class(root, ARRIVING) if c.get("data-slot") == "0"]
    gone = [[p.get("fill") for p in of_class(c, "gone")] for c in arrivals]
    blue, orange = fills(arrivals[0])[0], fills(old)[0]
    assert gone == [[], [blue], [orange]]
    assert blue != orange
    cross = of_class(of_class(root, "mark")[0], "cross")[0].get("d", "")
    x = [float(found) for found in re.findall(r"[ML]([\d.]+)", cross)]
    assert sum(x) / 2 == span(old)[1] == span(arrivals[2])[0]


def test_nothing_is_seen_under_the_first_copy_into_a_slot() -> None:
    """Also where the slot before it, whose content is drawn before, ends full."""
    chain = policies.chain(Ring(2, 2))
    object.__setattr__(chain, "preload", chain.preload[::-1])
    arrivals = of_class(parse(draw(check(chain), 1)), ARRIVING)
    assert [one.get("data-slot") for one in arrivals] == ["0", "1"]
    assert [of_class(one, "gone") for one in arrivals] == [[], []]


def test_a_safe_schedule_has_no_red() -> None:
    root = parse(drawn("balanced", 7, 3))
    assert of_class(root, "mark") == of_class(root, "cross") == of_class(root, "dot") == []
    assert words(root)[0] == "balanced, 7 modules, 3 slots: VERIFIED"


def test_boxes_contents_fences_and_marks_are_those_of_the_drawing() -> None:
    for drawing in drawings():
        root = parse(drawing)
        boxes = drawing.placed.boxes
        for name, kind in (("run", True), ("copy", False)):
            found = {int(one.get("data-box", "")) for one in of_class(root, name)}
            assert found == {n for n, b in enumerate(boxes) if isinstance(b.operation, Run) == kind}
        for group in of_class(root, "run") + of_class(root, "copy"):
            operation = boxes[int(group.get("data-box", ""))].operation
            title = group.findtext(f"{SVG}title", "")
            assert group.findtext(f"{SVG}text") == str(operation.module)
            assert f"module {operation.module}" in title
            assert f"slot {operation.slot}" in title
        arrows = [one for one in of_class(root, "fence") if one.get("data-from")]
        pairs = [(int(a.get("data-from", "")), int(a.get("data-to", ""))) for a in arrows]
        assert pairs == list(drawing.placed.fences)
        shown = Counter(
            (c.get("data-slot"), c.get("data-module"), c.get("class")) for c in contents(root)
        )
        wanted = Counter(
            (str(c.slot), str(c.module), f"content {c.phase}")
            for c in drawing.contents
            if c.phase != EMPTY_SLOT
        )
        assert shown.keys() == wanted.keys()
        assert all(shown[key] >= wanted[key] for key in wanted)
        marks = {int(one.get("data-box", "")) for one in of_class(root, "mark")}
        assert marks == {mark.moment for mark in drawing.marks}


def contents(root: Element) -> list[Element]:
    return of_class(root, "content")


def test_a_modules_boxes_and_contents_have_its_colour() -> None:
    for drawing in drawings():
        root = parse(drawing)
        paint = colours(drawing.findings.schedule.ring.modules, drawing.contents)
        for group in of_class(root, "run") + of_class(root, "copy"):
            module = drawing.placed.boxes[int(group.get("data-box", ""))].operation.module
            assert fills(group) == [paint[module]]
        for group in contents(root):
            assert fills(group)[-1] == paint[int(group.get("data-module", ""))]


def test_a_fence_starts_at_the_end_of_one_box_and_ends_at_the_start_of_the_other() -> None:
    root = parse(drawn("balanced", 7, 3))
    at = {g.get("data-box"): span(g) for g in of_class(root, "run") + of_class(root, "copy")}
    seen = 0
    for arrow in of_class(root, "fence"):
        if arrow.get("data-from"):
            x1, x2 = (float(x) for x in re.findall(r"[ML]([\d.-]+) ", arrow.get("d", "")))
            assert abs(x1 - at[arrow.get("data-from")][1]) <= 6
            assert abs(x2 - at[arrow.get("data-to")][0]) <= 6
            seen += 1
    assert seen == 13


def test_it_stays_on_its_page_and_long_ones_are_cut_into_rows() -> None:
    for drawing in (drawn("modular", 61, 8), drawn("balanced", 61, 8, 3), drawn("chain", 1, 1)):
        root = parse(drawing)
        width, height = float(root.get("width", "")), float(root.get("height", ""))
        assert width <= MOST + 200
        lanes = [one for one in words(root) if one == "compute"]
        assert (len(lanes) > 1) == (drawing.findings.schedule.ring.modules == 61)
        for group in of_class(root, "run") + of_class(root, "copy") + contents(root):
            assert LEFT <= span(group)[0] < span(group)[1] <= width
        for one in root.iter(f"{SVG}rect"):
            y, tall = float(one.get("y", "0")), float(one.get("height", ""))
            assert y + tall <= height
        pieces = Counter(int(g.get("data-box", "")) for g in of_class(root, "run"))
        assert len(pieces) == len(drawing.passes) * drawing.findings.schedule.ring.modules
        assert max(pieces.values()) <= 2


def test_boxes_of_a_lane_do_not_overlap_on_the_page() -> None:
    for drawing in (drawn("modular", 61, 8), drawn("double_buffer", 12, 4, 3)):
        lanes: dict[str, list[tuple[float, float]]] = {}
        for group in of_class(parse(drawing), "run") + of_class(parse(drawing), "copy"):
            edge = of_class(group, "edge")[0]
            lanes.setdefault(edge.get("y", ""), []).append(span(group))
        assert len(lanes) >= 4
        for spans in lanes.values():
            spans.sort()
            assert all(a[1] < b[0] for a, b in itertools.pairwise(spans))


def test_captions_are_numbered_once_and_cut() -> None:
    twice = parse(drawn("modular", 3, 2, 2))
    assert len(of_class(twice, "mark")) == 4
    assert len(of_class(twice, "caption")) == 2
    assert Counter(one.text for one in of_class(twice, "badge")) == {"1": 3, "2": 3}
    long = of_class(parse(drawn("modular", 61, 8)), "caption")
    assert len(long) == MOST_CAPTIONS + 1
    assert long[-1].text == "and 4 more"


def test_it_stands_alone_and_is_ascii() -> None:
    text = picture(drawn("modular", 3, 2))
    assert text.isascii()
    root = ElementTree.fromstring(text)
    assert not list(root.iter(f"{SVG}image")) + list(root.iter(f"{SVG}script"))
    # No address but the name of the format itself.
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {"#tip", "#hatch"}
    assert {one.get("id") for one in root.iter() if one.get("id")} == {"tip", "hatch"}
    page = of_class(root, "page")[0]
    assert float(page.get("width", "")) == float(root.get("width", "")) - 1


@pytest.mark.parametrize("name", ["<b> & \"c\" 'd'", "ring \u00e4\u2260", "a\x00b\x1bc", "</svg>"])
def test_a_policys_name_is_only_text(name: str) -> None:
    schedule = policies.chain(Ring(3, 2))
    object.__setattr__(schedule, "policy", name)
    text = picture(draw(check(schedule), 1))
    assert text.isascii()
    title = words(ElementTree.fromstring(text))[0]
    clean = name.replace("\x00", "?").replace("\x1b", "?")
    assert title == f"{clean}, 3 modules, 2 slots: VERIFIED"


def test_plain_and_tag() -> None:
    assert plain('a<b>&"\u20ac\x01') == "a&lt;b&gt;&amp;&quot;&#8364;?"
    assert tag("g", "x", class_="a", data_box=1) == '<g class="a" data-box="1">x</g>'
    assert tag("rect", x=1.5) == '<rect x="1.5"/>'


# ---- colours


def test_colours_are_distinct_while_they_last_and_never_red() -> None:
    assert len(set(PALETTE)) == 8
    assert RED not in PALETTE
    assert len(set(colours(8, ()))) == 8


@pytest.mark.parametrize("size", [(61, 8), (30, 4), (28, 7), (16, 8), (24, 6), (40, 5)], ids=str)
def test_modules_that_follow_each_other_in_a_slot_differ(size: tuple[int, int]) -> None:
    for name in ("slot_local", "balanced", "double_buffer"):
        drawing = drawn(name, *size, 1)
        paint = colours(size[0], drawing.contents)
        held = [(c.slot, c.module) for c in drawing.contents if c.phase == WHOLE]
        changes = [(a, b) for a, b in itertools.pairwise(held) if a[0] == b[0]]
        same = [pair for pair in changes if pair[0][1] != pair[1][1] and alike(paint, pair)]
        assert len(same) <= 1, (name, same)
        assert all(a != b for a, b in itertools.pairwise(paint))


def alike(paint: list[str], pair: tuple[tuple[int, int], tuple[int, int]]) -> bool:
    return paint[pair[0][1]] == paint[pair[1][1]]


# ---- the README's


def test_the_picture_in_the_readme_is_what_show_draws() -> None:
    """Make it anew: python -m schedule show --modules 3 --slots 2 --policy modular --svg FILE."""
    file = ROOT / "docs" / "modular_3_2.svg"
    assert f"({file.relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="ascii")
    assert file.read_text(encoding="ascii") == picture(drawn("modular", 3, 2))
