"""Costs: what they come to, and what makes no sense, named by its field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schedule.costs import MOST, Costs, Link, Module, Part, Times, Workload, equal_times
from schedule.errors import CostsError
from schedule.operations import COMPUTE, COPY, Streams

NAN, INFINITE = float("nan"), float("inf")
MODULES = (Module("a", (Part("w", 5), Part("b", 1)), 2), Module("b", (), 7), Module("c", ()))
DECODE, PREFILL = Workload("decode", (1, 2), (3, 4, 5), 2.0), Workload("prefill", (6, 7), (0,) * 3)
GOOD = Costs(MODULES[:2], (DECODE, PREFILL), Link(10, 3, 2), 100, "m", "cuda:0", "2.9")


def test_what_they_come_to() -> None:
    assert [one.size for one in MODULES] == [8, 7, 0]
    assert (GOOD.sizes, GOOD.whole) == ((8, 7), 115)
    assert (DECODE.total, PREFILL.total) == (15, 13)
    assert Costs(MODULES[:2], (PREFILL,), Link(10)).whole == 15


@pytest.mark.parametrize(
    ("link", "size", "expected"),
    [
        (Link(10**9), 7, 7),
        (Link(10**9, 11), 7, 18),
        (Link(10**9, 11), 0, 11),
        (Link(3), 1, 333_333_334),
        (Link(3), 3, 10**9),
        (Link(2, 1), 3, 1_500_000_001),
        (Link(2 * 10**9), 1, 1),  # half a nanosecond, rounded up
        (Link(2 * 10**9), 2, 1),
        (Link(7, streams=0), 7, 10**9),
        (Link(10**18), 10**18, 10**9),
        (Link(1, 10**18), 10**18, 10**18 + 10**27),
    ],
)
def test_a_copy_takes_its_bytes_over_the_bandwidth_and_the_latency(
    link: Link, size: int, expected: int
) -> None:
    assert link.time(size) == expected


def test_copy_streams_as_a_program_knows_them() -> None:
    names = [Link(1, streams=number).copy_streams.copies for number in range(4)]
    assert names == [
        (COMPUTE,),
        (COPY,),
        ("copy 0", "copy 1"),
        ("copy 0", "copy 1", "copy 2"),
    ]
    assert Link(1, streams=0).copy_streams.shared


def test_times_for_the_bytes_that_are_moved() -> None:
    streams = Streams(("copy 0", "copy 1"))
    second = 10**9
    assert GOOD.times(DECODE, GOOD.sizes) == Times(
        (1, 2), (3, 4, 5), (3 + 8 * second // 10, 3 + 7 * second // 10), streams
    )
    moved = GOOD.times(PREFILL, (2, 0))
    assert (moved.run, moved.between, moved.copy) == ((6, 7), (0,) * 3, (3 + second // 5, 3))
    assert equal_times(3) == Times((1, 1, 1), (0,) * 4, (2, 2, 2))
    assert equal_times(2, 3, 5) == Times((3, 3), (0,) * 3, (5, 5))


# ---- what makes no sense


def refused(**changed: Any) -> str:
    with pytest.raises(CostsError) as raised:
        replace(GOOD, **changed)
    return str(raised.value)


NUMBERS = (-1, MOST + 1, 1.0, NAN, INFINITE, "1", True, None, 1j, [1])


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "field",
    [
        "resident",
        "link.bandwidth",
        "link.latency",
        "link.streams",
        "modules[1].fixed",
        "modules[0].parts[1].size",
        "workloads[1].compute[1]",
        "workloads[0].between[2]",
    ],
)
def test_a_number_that_is_none_is_refused_by_its_field(field: str, value: Any) -> None:
    name = field.rpartition(".")[2]
    changed: dict[str, Any] = {
        "resident": lambda: {"resident": value},
        "bandwidth": lambda: {"link": replace(GOOD.link, bandwidth=value)},
        "latency": lambda: {"link": replace(GOOD.link, latency=value)},
        "streams": lambda: {"link": replace(GOOD.link, streams=value)},
        "fixed": lambda: {"modules": (MODULES[0], replace(MODULES[1], fixed=value))},
        "size": lambda: {
            "modules": (replace(MODULES[0], parts=(Part("w", 5), Part("b", value))), MODULES[1])
        },
        "compute[1]": lambda: {"workloads": (DECODE, replace(PREFILL, compute=(6, value)))},
        "between[2]": lambda: {"workloads": (replace(DECODE, between=(3, 4, value)), PREFILL)},
    }[name]()
    least = int(name == "bandwidth")
    assert refused(**changed) == f"{field}: {value!r} is no whole number from {least} to 10**18"


def test_the_first_numbers_that_are_none() -> None:
    assert refused(link=Link(0)) == "link.bandwidth: 0 is no whole number from 1 to 10**18"
    assert refused(link=Link(1, streams=65)) == "link.streams: 65; a device has at most 64"
    assert replace(GOOD, link=Link(MOST, MOST, 64), resident=MOST).link.streams == 64
    assert replace(GOOD, link=Link(1, 0, 0), resident=0).resident == 0


@pytest.mark.parametrize("value", [-1, -0.5, NAN, INFINITE, MOST, "1", True, None, 1j], ids=repr)
def test_a_weight_that_is_none(value: Any) -> None:
    message = f"workloads[1].weight: {value!r} is no number from 0 on"
    assert refused(workloads=(DECODE, replace(PREFILL, weight=value))) == message


def test_weights_may_be_zero_but_not_all() -> None:
    off = replace(DECODE, weight=0)
    assert replace(GOOD, workloads=(off, PREFILL)).workloads[0].weight == 0
    message = "workloads: every weight is 0; give at least one that counts"
    assert refused(workloads=(off, replace(PREFILL, weight=0.0))) == message


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"modules": ()}, "modules: none; costs are those of at least one module"),
        ({"workloads": ()}, "workloads: none; give the compute times of at least one"),
        (
            {"modules": MODULES[1:]},
            "modules[1]: c has no bytes to copy; leave it out",
        ),
        (
            {"modules": MODULES[:1]},
            "workloads[0].compute: 2 times, where 1 modules need 1",
        ),
        (
            {"workloads": (replace(DECODE, between=(1, 2)),)},
            "workloads[0].between: 2 times, where 2 modules need 3",
        ),
        (
            {"workloads": (PREFILL, replace(DECODE, compute=()))},
            "workloads[1].compute: 0 times, where 2 modules need 2",
        ),
        (
            {"modules": (MODULES[0], replace(MODULES[1], name="a"))},
            "modules: two are called 'a'; names are different",
        ),
        ({"workloads": (DECODE, DECODE)}, "workloads: two are called 'decode'"),
        (
            {"modules": (replace(MODULES[0], parts=(Part("w", 1), Part("w", 2))), MODULES[1])},
            "modules[0].parts: two are called 'w'; names are different",
        ),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_what_does_not_fit_together(changed: Any, message: str) -> None:
    assert refused(**changed).startswith(message)


@pytest.mark.parametrize("name", ["", "two\nlines", "\ud800", 3, None, b"a", "\x1b[2J"], ids=ascii)
def test_a_name_that_can_not_be_printed(name: Any) -> None:
    no_name = f".name: {name!a} is no name that can be printed"
    first = replace(MODULES[0], name=name)
    assert refused(modules=(first, MODULES[1])) == f"modules[0]{no_name}"
    part = replace(MODULES[0], parts=(Part("w", 5), Part(name, 1)))
    assert refused(modules=(part, MODULES[1])) == f"modules[0].parts[1]{no_name}"
    assert refused(workloads=(replace(DECODE, name=name),)) == f"workloads[0]{no_name}"


@pytest.mark.parametrize("field", ["model", "device", "torch"])
@pytest.mark.parametrize("value", ["two\nlines", "\ud800", 3, None], ids=ascii)
def test_a_text_that_can_not_be_printed(field: str, value: Any) -> None:
    """What was written must be read again."""
    assert refused(**{field: value}) == f"{field}: {value!a} is no text that can be printed"
    assert getattr(replace(GOOD, **{field: ""}), field) == ""
