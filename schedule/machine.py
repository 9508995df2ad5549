"""The state machine: what each slot holds, and which event is allowed when.

One pure transition function. ``run`` drives it over a schedule with integers; the proofs
drive the very same function with symbolic integers. So that it can't tell the difference,
slots are read as ``[slot]`` and written as ``.put(slot, value)``, and there is no ``in``, no
``isinstance`` and no loop. Slots never interact: an event touches the entries of its own slot
alone, which is why a proof may look at one arbitrary slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from schedule.properties import IDENTITY, OWNERSHIP, RAW, WAR, WAW
from schedule.ring import EMPTY, Slots
from schedule.table import RUN, Moment, Schedule


@dataclass(frozen=True, slots=True)
class CopyBegins:
    """The device starts to write the module's weights into the slot."""

    slot: int
    module: int


@dataclass(frozen=True, slots=True)
class CopyLands:
    """The slot's copy has written its last byte."""

    slot: int


@dataclass(frozen=True, slots=True)
class ModuleBegins:
    """The module starts to read the slot; it is the one that this step runs."""

    slot: int
    module: int


@dataclass(frozen=True, slots=True)
class ModuleEnds:
    """The module has read the slot for the last time."""

    slot: int


@dataclass(frozen=True, slots=True)
class ModuleArrives:
    """A module is about to run, maybe out of order: the machine is now at its step."""

    step: int


Event = CopyBegins | CopyLands | ModuleBegins | ModuleEnds | ModuleArrives
NextUser = Callable[[int, int], int]
"""(slot, step) -> the module that runs first from the slot at or after the step, or EMPTY."""


@dataclass(frozen=True, slots=True)
class State:
    """step: how many modules began. holds, moving: by slot, the module that is there and the
    one whose copy is under way, or EMPTY. running: the slot that is being read, or EMPTY."""

    step: int
    holds: Slots
    moving: Slots
    running: int


@dataclass(frozen=True, slots=True)
class Objection:
    """Why an event is not allowed: the property that it would violate, and the slot."""

    property: str
    slot: int


def start(slots: int) -> State:
    """Nothing ran, nothing is in any slot."""
    return State(0, Slots.empty(slots), Slots.empty(slots), EMPTY)


def objection(state: State, event: Event, next_user: NextUser) -> Objection | None:
    """The guards: the property that this event would violate now, if any."""
    match event:
        case CopyBegins(slot, module):
            # WAR: the reader must have ended before its bytes are replaced.
            if state.running == slot:
                return Objection(WAR, slot)
            # WAW: two copies into one slot at a time leave a mixture.
            if state.moving[slot] != EMPTY:
                return Objection(WAW, slot)
            # Ownership: the module that the slot's next run reads is already there.
            held = state.holds[slot]
            if held != EMPTY and held == next_user(slot, state.step) and module != held:
                return Objection(OWNERSHIP, slot)
        case ModuleBegins(slot, module):
            # RAW: a copy that has not landed has not written all bytes.
            if state.moving[slot] != EMPTY:
                return Objection(RAW, slot)
            # Identity: the bytes must be this module's.
            if state.holds[slot] != module:
                return Objection(IDENTITY, slot)
    return None


def effect(state: State, event: Event) -> State:
    """What the device does at this event, allowed or not."""
    match event:
        case CopyBegins(slot, module):
            return replace(state, moving=state.moving.put(slot, module))
        case CopyLands(slot):
            return replace(
                state,
                holds=state.holds.put(slot, state.moving[slot]),
                moving=state.moving.put(slot, EMPTY),
            )
        case ModuleBegins(slot, _):
            return replace(state, running=slot, step=state.step + 1)
        case ModuleEnds(_):
            return replace(state, running=EMPTY)
        case ModuleArrives(step):
            return replace(state, step=step)


def transition(state: State, event: Event, next_user: NextUser) -> State | Objection:
    """The machine: the next state, or why the event is not allowed."""
    return objection(state, event, next_user) or effect(state, event)


def events(moment: Moment) -> tuple[Event, Event]:
    """A moment of a walk as device events, in host order: a copy lands at once."""
    if moment.half == RUN:
        return ModuleBegins(moment.slot, moment.module), ModuleEnds(moment.slot)
    return CopyBegins(moment.slot, moment.module), CopyLands(moment.slot)


def run(schedule: Schedule, periods: int) -> dict[str, Moment]:
    """Execute the schedule for that many periods in host order.

    Returns the first moment that violates each property; one violation does not hide another.
    """
    found: dict[str, Moment] = {}
    moments = list(schedule.walk(periods))
    for position, refused, _ in objections(schedule, moments):
        found.setdefault(refused.property, moments[position])
    return found


def objections(
    schedule: Schedule, moments: Iterable[Moment]
) -> Iterator[tuple[int, Objection, State]]:
    """Every objection to these moments, which are the start of the schedule's walk: the moment's
    position, and the state before. Behind an objection the run goes on as the device would."""
    users = schedule.users()
    state = start(schedule.ring.slots)
    for position, moment in enumerate(moments):
        for event in events(moment):
            after = transition(
                state, event, lambda slot, step: schedule.next_user(users, slot, step)
            )
            if isinstance(after, Objection):
                yield position, after, state
                after = effect(state, event)
            state = after
