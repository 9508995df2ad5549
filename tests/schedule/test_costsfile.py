"""A costs file: what is written and read again, and what anything else gets: file and field."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schedule import costsfile
from schedule.costs import MOST, Costs, Link, Module, Part, Workload
from schedule.costsfile import costs_of, document, read, text
from schedule.errors import CostsError

COSTS = Costs(
    (Module("layers.0", (Part("w", 5), Part("b", 1)), 2), Module("l\xe4yers.1", (), 7)),
    (Workload("decode", (1, 2), (3, 4, 5), 2.5), Workload("prefill", (6, 7), (0, 0, 8))),
    Link(10, 3, 2),
    100,
    "a model",
    "cuda:0",
    "2.9.1",
)
DOCUMENT: dict[str, Any] = {
    "costs": 1,
    "units": "bytes, nanoseconds, bytes a second",
    "model": "a model",
    "device": "cuda:0",
    "torch": "2.9.1",
    "link": {"bandwidth": 10, "latency": 3, "streams": 2},
    "resident": 100,
    "modules": [
        {"name": "layers.0", "fixed": 2, "parts": {"w": 5, "b": 1}},
        {"name": "l\xe4yers.1", "fixed": 7, "parts": {}},
    ],
    "workloads": [
        {"name": "decode", "weight": 2.5, "compute": [1, 2], "between": [3, 4, 5]},
        {"name": "prefill", "weight": 1.0, "compute": [6, 7], "between": [0, 0, 8]},
    ],
}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    assert document(COSTS) == DOCUMENT
    assert json.loads(text(COSTS)) == DOCUMENT
    assert text(COSTS).isascii()
    assert text(COSTS).startswith('{\n "costs": 1,\n')
    assert text(COSTS).endswith("}\n")
    path = tmp_path / "costs.json"
    path.write_text(text(COSTS), encoding="ascii")
    assert read(path) == read(str(path)) == costs_of(DOCUMENT) == COSTS


def test_any_costs_are_read_again() -> None:
    for seed in range(100):
        random = Random(seed)

        def number(least: int = 0, random: Random = random) -> int:
            return random.choice((least, random.randint(least, 99), MOST))

        modules = tuple(
            Module(
                f"m{at}",
                tuple(Part(f"p{part}", number()) for part in range(random.randint(0, 3))),
                number(1),
            )
            for at in range(random.randint(1, 4))
        )
        workloads = tuple(
            Workload(
                name,
                tuple(number() for _ in modules),
                tuple(number() for _ in range(len(modules) + 1)),
                random.choice((1, 0.1, 3.0, 1e-300)),
            )
            for name in random.sample(("decode", "prefill", "\u2603"), random.randint(1, 3))
        )
        link = Link(number(1), number(), random.randint(0, 64))
        costs = Costs(modules, workloads, link, number(), random.choice(("", "\u2603")))
        assert costs_of(json.loads(text(costs))) == costs


def test_a_reader_may_do_without_units_and_weights() -> None:
    found = copy.deepcopy(DOCUMENT)
    del found["units"], found["workloads"][0]["weight"], found["workloads"][1]["weight"]
    first = replace(COSTS.workloads[0], weight=1.0)
    assert costs_of(found) == replace(COSTS, workloads=(first, COSTS.workloads[1]))


def test_parts_of_a_nanosecond_are_dropped() -> None:
    found = copy.deepcopy(DOCUMENT)
    found["workloads"][0]["compute"] = [1.999, 2.0]
    found["link"]["latency"] = 3.5
    assert costs_of(found) == COSTS


# ---- each field


def places(value: Any, name: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every value of the document: its name in a message, and the way to it."""
    steps: Iterator[tuple[Any, str]] = iter(())
    if isinstance(value, dict):
        steps = ((key, f"{name}.{key}" if name else key) for key in value)
    elif isinstance(value, list):
        steps = ((at, f"{name}[{at}]") for at in range(len(value)))
    for step, inner in steps:
        yield inner, (step,)
        yield from ((deeper, (step, *way)) for deeper, way in places(value[step], inner))


PLACES = dict(places(DOCUMENT))


def at(way: tuple[Any, ...], change: Callable[[Any, Any], Any]) -> Any:
    """The document with a change of what is there, by its holder and key."""
    found = copy.deepcopy(DOCUMENT)
    holder = found
    for step in way[:-1]:
        holder = holder[step]
    change(holder, way[-1])
    return found


def put(way: tuple[Any, ...], value: Any) -> Any:
    return at(way, lambda holder, key: holder.__setitem__(key, value))


def there(name: str) -> Any:
    value: Any = DOCUMENT
    for step in PLACES[name]:
        value = value[step]
    return value


def refused(data: Any) -> str:
    with pytest.raises(CostsError) as raised:
        costs_of(data)
    return str(raised.value)


def test_the_document_has_every_field() -> None:
    assert len(PLACES) == 42
    assert {name for name in PLACES if "[" not in name} == {
        *DOCUMENT,
        *(f"link.{name}" for name in DOCUMENT["link"]),
    }


@pytest.mark.parametrize("value", ["1", True, None, [1], {"a": [1]}, float("nan")], ids=repr)
@pytest.mark.parametrize("name", PLACES)
def test_another_kind_of_value_is_refused_by_its_field(name: str, value: Any) -> None:
    kinds = (dict, list, str, (int, float))
    own = next(kind for kind in kinds if isinstance(there(name), kind))
    same = isinstance(value, own) and value is not True and value == value
    if own is str and same and name != "units":
        assert costs_of(put(PLACES[name], value)) is not None  # a text is as good as another
        return
    message = refused(put(PLACES[name], value))
    # A list or an object of the right kind is refused for what is in it.
    assert message.startswith((f"{name}:", f"{name}[", f"{name}.") if same else f"{name}:"), message


@pytest.mark.parametrize("value", [-1, -0.001, -float("inf"), float("inf"), 10**19, 10**400])
@pytest.mark.parametrize(
    "name",
    [one for one in PLACES if type(there(one)) in (int, float) and one != "costs"],
)
def test_numbers_out_of_range_are_refused_by_their_field(name: str, value: Any) -> None:
    assert refused(put(PLACES[name], value)).startswith(f"{name}:")


@pytest.mark.parametrize("version", [0, 2, 1.0, True, "1", None, [], 10**400], ids=repr)
def test_another_version_is_refused(version: Any) -> None:
    assert refused(put(("costs",), version)).startswith("costs: ")
    assert refused(put(("costs",), version)).endswith(", where 1 is known")


@pytest.mark.parametrize("name", [one for one in PLACES if not one.endswith("]")])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    found = at(PLACES[name], lambda holder, key: holder.pop(key))
    optional = name in ("units",) or name.endswith("weight") or ".parts." in name
    if optional:
        assert costs_of(found).model == "a model"
    elif name == "costs":
        assert refused(found) == "costs: null, where 1 is known"
    else:
        assert refused(found) == f"{name}: missing"


@pytest.mark.parametrize(
    ("way", "name"),
    [
        (("odd",), "odd"),
        (("link", "odd"), "link.odd"),
        (("modules", 1, "odd"), "modules[1].odd"),
        (("workloads", 0, "weights"), "workloads[0].weights"),
        (("workloads", 0, "\x1b[2J"), "workloads[0].'\\x1b[2J'"),
    ],
)
def test_a_field_that_is_not_known_is_named(way: tuple[Any, ...], name: str) -> None:
    assert refused(put(way, 1)) == f"{name}: unknown field"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("modules", [], "modules: none"),
        ("workloads", [], "workloads: none"),
        ("workloads[0].compute", [1], "workloads[0].compute: 1 times, where 2 modules need 2"),
        ("workloads[1].between", [1], "workloads[1].between: 1 times, where 2 modules need 3"),
        ("modules[1].name", "layers.0", "modules: two are called 'layers.0'"),
        ("workloads[1].name", "decode", "workloads: two are called 'decode'"),
        ("modules[1].name", "", "modules[1].name: '' is no name"),
        ("modules[1].name", "a\nb", "modules[1].name: 'a\\nb' has characters"),
        ("modules[1].parts", {"a\nb": 1}, "modules[1].parts: 'a\\nb' has characters"),
        ("modules[1].parts", {"": 1}, "modules[1].parts[0].name: '' is no name"),
        ("model", "\ud800", "model: '\\ud800' has characters"),
        ("modules[1].fixed", 0, "modules[1]: l\xe4yers.1 has no bytes to copy"),
        ("link.bandwidth", 0, "link.bandwidth: 0 is no whole number from 1"),
        ("link.bandwidth", 0.9, "link.bandwidth: 0 is no whole number from 1"),
        ("link.streams", 65, "link.streams: 65; a device has at most 64"),
        ("units", "bytes, seconds", 'units: "bytes, seconds", where '),
    ],
)
def test_what_makes_no_sense_is_named(name: str, value: Any, message: str) -> None:
    assert refused(put(PLACES[name], value)).startswith(message)


@pytest.mark.parametrize("data", [None, 1, "costs", [], [DOCUMENT]], ids=["null", *"1s[l"])
def test_what_is_no_object(data: Any) -> None:
    assert refused(data).startswith("costs: an object is needed, not ")


# ---- files


def reading(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(CostsError) as raised:
        read(path)
    message = str(raised.value)
    assert message.startswith(str(path))
    return message[len(str(path)) :]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", " is no JSON: Expecting value"),
        (b"{", " is no JSON: "),
        (b"{'costs': 1}", " is no JSON: "),
        (b"\xff\xfe", " is no JSON: 'utf-8' codec"),
        (b"\xef\xbb\xbf{}", " is no JSON: Unexpected UTF-8 BOM"),
        (b"{} {}", " is no JSON: Extra data"),
        (b"[1" + b"0" * 5000 + b"]", " is no JSON: Exceeds the limit"),
        (b'{"costs": 2}', ": costs: 2, where 1 is known"),
        (b"NaN", ": costs: an object is needed, not NaN"),
        (b'{"costs": 1, "costs": 1}', ": costs: is there twice"),
        (
            text(COSTS).replace('"w": 5', '"w": 5, "w": 6').encode(),
            ": w: is there twice",
        ),
        (text(COSTS).replace('"resident": 100', '"resident": 1e999').encode(), ": resident: "),
    ],
)
def test_what_is_no_costs_file_is_refused_with_its_name(
    tmp_path: Path, content: bytes, message: str
) -> None:
    assert reading(tmp_path / "odd.json", content).startswith(message)


def test_what_can_not_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(CostsError, match="can't be read: ") as raised:
            read(path)
        assert str(raised.value).startswith(f"{path} can't be read: ")
        assert str(raised.value).endswith("; name a file that python -m runtime profile wrote")


def test_a_file_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole of a terabyte is not read."""
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CostsError, match="has more than 67,108,864 bytes: these are no costs"):
        read(path)
    content = text(COSTS).encode()
    monkeypatch.setattr(costsfile, "MOST_BYTES", len(content))
    path.write_bytes(content)
    assert read(path) == COSTS
    assert reading(path, content + b"\n") == (
        f" has more than {len(content)} bytes: these are no costs"
    )


@pytest.mark.parametrize("name", ["resident", "modules", "link", "model", "units", "costs"])
def test_nested_as_deep_as_can_be(tmp_path: Path, name: str) -> None:
    """Where the reader still comes to its end, showing what it found may not."""
    path, messages = tmp_path / "deep.json", set()
    limit = sys.getrecursionlimit()
    for depth in (*range(limit - 200, limit + 1), 10 * limit):
        deep = "[" * depth + "]" * depth
        content = text(COSTS).replace(f'\n "{name}":', f'\n "{name}": {deep}, "another":', 1)
        messages.add(reading(path, content.encode()).partition(" [[")[0])
    assert " is nested too deeply: these are no costs" in messages
    usual = {f": {name}:", ": another: unknown field"}
    assert all("nested too deeply" in one or one in usual for one in messages), messages
