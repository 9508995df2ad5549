"""Bad sizes, tables and policies: the error's type, the value that it names, and the remedy."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from schedule import (
    ModuleNotResident,
    OffloadError,
    Policy,
    PolicyError,
    Refill,
    Ring,
    RingError,
    Schedule,
    ScheduleError,
    ScheduleViolation,
    policies,
)
from schedule.budget import INSTRUCTIONS
from schedule.loading import load, load_object

# ---- sizes


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "must be at least 1, got 0"),
        (-1, "must be at least 1, got -1"),
        (True, "must be an integer, got True of type bool; pass int({name}), at least 1"),
        (2.0, "must be an integer, got 2.0 of type float; pass int({name}), at least 1"),
        ("3", "must be an integer, got '3' of type str; pass int({name}), at least 1"),
        (None, "must be an integer, got None of type NoneType"),
        (1_000_001, "must be at most 1000000, got 1000001"),
    ],
)
@pytest.mark.parametrize("name", ["modules", "slots"])
def test_sizes_that_are_no_positive_integers(name: str, value: Any, said: str) -> None:
    sizes: dict[str, Any] = {"modules": 3, "slots": 2, name: value}
    with pytest.raises(RingError, match=re.escape(f"{name} {said.format(name=name)}")):
        Ring(**sizes)


def test_good_sizes() -> None:
    assert (Ring(1, 1).modules, Ring(1, 9).slots) == (1, 9)
    assert Ring(1_000_000, 1_000_000).modules == 1_000_000
    assert Ring(3, 2) == Ring(modules=3, slots=2)


# ---- tables

GOOD = policies.chain(Ring(3, 2))
NONE: tuple[Refill, ...] = ()


@pytest.mark.parametrize(
    ("table", "value", "said"),
    [
        ("slot_of", (), "slot_of has 0 steps; give one slot a module and pass"),
        ("slot_of", (0, 1), "slot_of has 2 steps; give one slot a module and pass, a positive "),
        ("slot_of", (0, 1, 0, 1), "a positive multiple of 3"),
        ("slot_of", (0, 1, 0) * 2, "enter has 1 entries; this period needs 2"),
        ("enter", (), "enter has 0 entries; this period needs 1"),
        ("enter", (NONE,) * 3, "enter has 3 entries; this period needs 1"),
        ("before", (NONE,) * 2, "before has 2 entries; this period needs 3"),
        ("after", (NONE,) * 4, "after has 4 entries; this period needs 3"),
        ("leave", (NONE,) * 2, "leave has 2 entries; this period needs 1"),
        ("slot_of", (0, 2, 0), "slot_of[1] of policy chain: slot 2 is outside this ring: 0 .. 1"),
        ("slot_of", (0, 1, -1), "slot_of[2] of policy chain: slot -1 is outside this ring"),
        ("slot_of", (0, True, 0), "slot_of[1] of policy chain: slot True is a bool; give an int"),
        ("slot_of", (0.0, 1, 0), "slot_of[0] of policy chain: slot 0.0 is a float; give an int"),
        ("slot_of", ("0", 1, 0), "slot_of[0] of policy chain: slot '0' is a str; give an int"),
        ("preload", ((0, 3),), "preload of policy chain: module 3 is outside this ring: 0 .. 2"),
        ("preload", ((0, -1),), "preload of policy chain: module -1 is outside this ring"),
        ("preload", ((2, 0),), "preload of policy chain: slot 2 is outside this ring: 0 .. 1"),
        ("preload", ((0, None),), "preload of policy chain: module None is a NoneType; give an"),
        ("enter", (((0, 9),),), "enter[0] of policy chain: module 9 is outside this ring"),
        ("before", (NONE, ((9, 0),), NONE), "before[1] of policy chain: slot 9 is outside"),
        ("after", (NONE, NONE, ((0, 1.5),)), "after[2] of policy chain: module 1.5 is a float"),
        ("leave", (((-2, 0),),), "leave[0] of policy chain: slot -2 is outside this ring"),
    ],
)
def test_tables_that_do_not_fit_their_ring(table: str, value: Any, said: str) -> None:
    with pytest.raises(ScheduleError, match=re.escape(said)):
        dataclasses.replace(GOOD, **{table: value})


def test_the_same_tables_fit_when_they_are_right() -> None:
    assert dataclasses.replace(GOOD, enter=((Refill(1, 2),),)).copies == GOOD.copies + 1


# ---- policies that can't be found


def test_an_unknown_name_lists_the_names() -> None:
    for find in (policies.named, load):
        with pytest.raises(PolicyError) as caught:
            find("chian")
        said = str(caught.value)
        assert "no policy is called 'chian'" in said
        assert "modular, slot_local, chain, balanced, double_buffer, single_buffer" in said
        assert "or give pkg.module:function" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("json", "no policy is called 'json'"),
        ("", "no policy is called ''"),
        ("no_such_module:f", "importing no_such_module failed with ModuleNotFoundError"),
        ("no_such_module:f", "run from the directory that holds it, or put that on PYTHONPATH"),
        ("json:nope", "json:nope: json was imported but has no 'nope'"),
        ("json:JSONDecoder.nope", "json was imported but has no 'JSONDecoder.nope'"),
        (":f", "':f' is not of the form pkg.module:function"),
        ("x:", "'x:' is not of the form pkg.module:function"),
        (":", "':' is not of the form pkg.module:function"),
        (".json:f", "importing .json failed with TypeError"),
        ("json:JSONDecoder", "a policy is a function (index, slots, modules) -> target or None"),
        ("json:__name__", "-> target or None; got 'json'"),
        ("json:dumps", "json:dumps can't be called with (index, slots, modules)"),
        ("this_policy_module_exits:f", "importing this_policy_module_exits failed with SystemExit"),
    ],
)
def test_policies_that_cannot_be_loaded(
    text: str, said: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "this_policy_module_exits.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PolicyError, match=re.escape(said)):
        load(text)


def test_policies_that_can_be_loaded() -> None:
    assert load("balanced") is policies.balanced
    assert load("schedule.policy:single_buffer") is policies.single_buffer
    loaded = load("schedule.policy:slot_local_target")
    assert loaded.name == "schedule.policy:slot_local_target"
    ring = Ring(5, 2)
    expected = dataclasses.replace(policies.slot_local(ring), policy=loaded.name)
    assert loaded(ring) == expected
    assert load_object("json:JSONDecoder.decode").__name__ == "decode"  # type: ignore[attr-defined]


# ---- policies that misbehave


def two_arguments(index: int, slots: int) -> int:
    return index % slots


def four_arguments(index: int, slots: int, modules: int, more: int) -> int:
    return (index + slots + more) % modules


def raising(index: int, slots: int, modules: int) -> int:
    return [0, 1][index + slots + modules]


def recursing(index: int, slots: int, modules: int) -> int:
    return recursing(index, slots, modules)


def endless(index: int, slots: int, modules: int) -> int:
    while True:
        index = (index + slots) % modules


def endless_without_a_line(index: int, slots: int, modules: int) -> int:  # noqa: ARG001
    while True: pass  # fmt: skip  # noqa: E701


def endless_and_deaf(index: int, slots: int, modules: int) -> int:
    """Ignores every ordinary exception."""
    while True:
        try:
            index = (index + slots) % modules
        except Exception:
            index = 0


def endless_below(index: int, slots: int, modules: int) -> int:
    return endless(index, slots, modules)


def returning(value: object) -> Callable[[int, int, int], Any]:
    return lambda index, *_: value if index == 2 else 0


def refuse(function: Any, *said: str) -> None:
    """This function is refused on the ring (3, 2), in these words."""
    with pytest.raises(PolicyError) as caught:
        policies.from_target(function, Ring(3, 2))
    for words in said:
        assert words in str(caught.value)


@pytest.mark.parametrize("function", [two_arguments, four_arguments, lambda: 0])
def test_functions_with_other_arguments(function: Any) -> None:
    name = f"{function.__module__}:{function.__qualname__}"
    refuse(function, f"{name} can't be called with (index, slots, modules): ")
    with pytest.raises(PolicyError, match="can't be called with"):
        policies.of_target(function)


@pytest.mark.parametrize("thing", [3, None, "chain", Ring, dict, (1, 2, 0)])
def test_things_that_are_no_functions(thing: Any) -> None:
    refuse(thing, "a policy is a function (index, slots, modules) -> target or None", repr(thing))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raising, "raised IndexError: list index out of range; a policy returns a number or None"),
        (recursing, "raised RecursionError: "),
        (endless, f"did not return within {INSTRUCTIONS:,} instructions; a policy is plain arith"),
        (endless_without_a_line, f"did not return within {INSTRUCTIONS:,} instructions; "),
        (endless_and_deaf, f"did not return within {INSTRUCTIONS:,} instructions; "),
        (endless_below, f"did not return within {INSTRUCTIONS:,} instructions; "),
    ],
)
def test_functions_that_do_not_return(function: Any, said: str) -> None:
    refuse(function, f"{function.__module__}:{function.__name__}(0, 2, 3) {said}")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (2.0, ", a float; return an integer, or None for no refill"),
        (True, ", a bool; return an integer, or None for no refill"),
        ("1", ", a str; return an integer, or None for no refill"),
        ((0, 1), ", a tuple; return an integer, or None for no refill"),
        (3, ", which is no module; return 0 .. 2, or None"),
        (-1, ", which is no module; return 0 .. 2, or None"),
        (10**30, ", which is no module; return 0 .. 2, or None"),
    ],
)
def test_functions_that_return_no_module(value: object, said: str) -> None:
    refuse(
        returning(value),
        f" returned {value!r} for (index=2, slots=2, modules=3){said}",
    )


def test_functions_that_return_none_refill_nothing() -> None:
    schedule = policies.from_target(returning(None), Ring(3, 2))
    assert schedule.after == ((Refill(0, 0),), (Refill(0, 0),), ())


def test_callables_of_every_kind_are_functions() -> None:
    """A bound method, an object with __call__, one with defaults, and a built-in."""

    class Rule:
        def __call__(self, index: int, slots: int, modules: int, _: int = 0) -> int:
            return policies.slot_local_target(index, slots, modules)

    expected = policies.slot_local(Ring(5, 2)).after
    for function in (Rule(), Rule().__call__, policies.slot_local_target):
        assert policies.from_target(function, Ring(5, 2)).after == expected
    assert policies.from_target(min, Ring(3, 2)).after == (
        (Refill(0, 0),),
        (Refill(1, 1),),
        (Refill(0, 2),),
    )


def test_too_few_slots_for_the_rule() -> None:
    with pytest.raises(PolicyError) as caught:
        policies.double_buffer(Ring(5, 1))
    said = "policy double_buffer needs at least 2 slots, got 1; give more slots or choose "
    assert str(caught.value) == f"{said}single_buffer"
    assert policies.double_buffer(Ring(5, 2)).copies == 5


def test_a_policy_of_ones_own() -> None:
    """Only the slot map; refills and preload are derived."""
    schedule = Policy("mine", lambda step, ring: (ring.modules - 1 - step) % ring.slots)(Ring(3, 2))
    assert schedule.slot_of == (0, 1, 0)
    assert schedule.after == policies.chain(Ring(3, 2)).after


@pytest.mark.parametrize("slot", [2, -1, 10**30, True, 1.0, "0", None])
def test_a_slot_map_that_gives_no_slot(slot: Any) -> None:
    policy = Policy("mine", lambda step, _: slot if step == 1 else 0)
    with pytest.raises(PolicyError) as caught:
        policy(Ring(3, 2))
    assert f"policy mine gives step 1 the slot {slot!r} in " in str(caught.value)
    assert "slots are the integers 0 .. 1" in str(caught.value)


# ---- the errors themselves


@pytest.mark.parametrize(
    "error", [RingError, ScheduleError, PolicyError, ScheduleViolation, OffloadError]
)
def test_bad_input_is_a_value_error(error: type[Exception]) -> None:
    assert issubclass(error, ValueError)
    assert error.__doc__


def test_a_miss_is_no_bad_input() -> None:
    assert issubclass(ModuleNotResident, RuntimeError)
    assert not issubclass(ModuleNotResident, ValueError)


def test_schedules_are_plain_immutable_data() -> None:
    schedule: Schedule = policies.chain(Ring(3, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.policy = "other"  # type: ignore[misc]
    assert hash(schedule) == hash(policies.chain(Ring(3, 2)))
    assert schedule == policies.chain(Ring(3, 2))
