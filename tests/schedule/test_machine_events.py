"""The machine's transition, event by event: every guard, its order, and what each event changes."""

from __future__ import annotations

import pytest

from schedule.machine import (
    CopyBegins,
    CopyLands,
    Event,
    ModuleArrives,
    ModuleBegins,
    ModuleEnds,
    Objection,
    State,
    effect,
    events,
    start,
    transition,
)
from schedule.ring import EMPTY, Slots
from schedule.table import Moment


def next_user(slot: int, step: int) -> int:
    """Module 7 always reads slot 0 next; module 5 reads slot 1 from step 3 on."""
    return 7 if slot == 0 else 5 if step >= 3 else 4


def state(
    step: int = 3,
    holds: tuple[int, int] = (7, 5),
    moving: tuple[int, int] = (EMPTY, EMPTY),
    running: int = EMPTY,
) -> State:
    return State(step, Slots(holds), Slots(moving), running)


@pytest.mark.parametrize(
    ("before", "event", "objection"),
    [
        (state(running=0), CopyBegins(0, 7), Objection("WAR", 0)),
        (state(running=1), CopyBegins(0, 7), None),
        (state(moving=(7, EMPTY)), CopyBegins(0, 7), Objection("WAW", 0)),
        (state(moving=(EMPTY, 5)), CopyBegins(0, 7), None),
        (state(running=0, moving=(7, EMPTY)), CopyBegins(0, 2), Objection("WAR", 0)),
        (state(), CopyBegins(0, 2), Objection("ownership", 0)),
        (state(), CopyBegins(1, 2), Objection("ownership", 1)),
        (state(step=2), CopyBegins(1, 2), None),  # module 4 runs next, and is not there
        (state(), CopyBegins(0, 7), None),
        (state(holds=(2, 5)), CopyBegins(0, 3), None),
        (state(holds=(EMPTY, 5)), CopyBegins(0, 3), None),
        (state(moving=(7, EMPTY)), ModuleBegins(0, 7), Objection("RAW", 0)),
        (state(moving=(EMPTY, 5)), ModuleBegins(0, 7), None),
        (state(), ModuleBegins(0, 2), Objection("identity", 0)),
        (state(holds=(EMPTY, 5)), ModuleBegins(0, 7), Objection("identity", 0)),
        (state(moving=(2, EMPTY)), CopyLands(0), None),
        (state(running=0), ModuleEnds(0), None),
        (state(), ModuleArrives(9), None),
    ],
)
def test_guards(before: State, event: Event, objection: Objection | None) -> None:
    after = transition(before, event, next_user)
    assert after == (objection or effect(before, event))


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        (state(), CopyBegins(0, 2), state(moving=(2, EMPTY))),
        (state(moving=(2, EMPTY)), CopyLands(0), state(holds=(2, 5))),
        (state(moving=(2, 3)), CopyLands(1), state(holds=(7, 3), moving=(2, EMPTY))),
        (state(), ModuleBegins(1, 5), state(step=4, running=1)),
        (state(running=1), ModuleEnds(1), state()),
        (state(), ModuleArrives(9), state(step=9)),
        (state(), ModuleArrives(0), state(step=0)),
    ],
)
def test_effects(before: State, event: Event, after: State) -> None:
    assert effect(before, event) == after


def test_no_user_means_no_owner() -> None:
    """EMPTY is no module: an empty slot that nobody runs from is never protected."""
    empty = state(holds=(EMPTY, EMPTY))
    after = transition(empty, CopyBegins(0, 2), lambda *_: EMPTY)
    assert after == state(holds=(EMPTY, EMPTY), moving=(2, EMPTY))


def test_start_and_host_order() -> None:
    assert start(2) == State(0, Slots((EMPTY, EMPTY)), Slots((EMPTY, EMPTY)), EMPTY)
    assert events(Moment("run", 4, 1, 3)) == (ModuleBegins(1, 3), ModuleEnds(1))
    for half in ("preload", "enter", "before", "after", "leave"):
        assert events(Moment(half, 4, 1, 3)) == (CopyBegins(1, 3), CopyLands(1))


def test_slots_are_immutable() -> None:
    table = Slots.empty(3)
    assert table.put(1, 8) == Slots((EMPTY, 8, EMPTY))
    assert table.put(0, 8).put(2, 9) == Slots((8, EMPTY, 9))
    assert table == Slots((EMPTY, EMPTY, EMPTY))
