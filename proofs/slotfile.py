"""Symbolic stand-ins for what the machine touches: slots, slot maps, next users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from proofs.integers import SymBool, SymInt, both, either, implies, opposite
from proofs.symbolic import Result, Run


@dataclass(frozen=True, slots=True, eq=False)
class SymbolicRing:
    """A ring of every size at once; or of one K, an int then, and every N."""

    modules: SymInt
    slots: Any

    def __eq__(self, other: object) -> bool:
        self.modules.run.not_followed("a comparison of rings")

    def __hash__(self) -> int:
        self.modules.run.not_followed("a hash of a ring")


def any_ring(run: Run, least_slots: int = 1) -> SymbolicRing:
    """N and K, free but for N >= 1 and K >= least_slots; where K is known, an int."""
    ring = SymbolicRing(run.integer("N"), run.integer("K") if run.slots is None else run.slots)
    run.assume(ring.modules >= 1, ring.slots >= least_slots)
    return ring


def with_slots(body: Callable[[Run], Result], slots: int | None) -> Callable[[Run], Result]:
    """The body, in whose rings K is this int, or free if it is None."""

    def known(run: Run) -> Result:
        run.slots = slots
        return body(run)

    return known


@dataclass(frozen=True, slots=True)
class OneSlot:
    """A slot file that remembers one arbitrary slot; of the others nothing is known.

    That is enough, since an event touches the entries of its own slot alone, and what holds of
    an arbitrary slot holds of each."""

    run: Run
    slot: SymInt
    value: Any

    def __getitem__(self, slot: Any) -> Any:
        return self.value if slot == self.slot else self.run.fresh("elsewhere")

    def put(self, slot: Any, value: Any) -> OneSlot:
        return replace(self, value=value) if slot == self.slot else self


@dataclass(frozen=True, slots=True)
class AnySlotMap:
    """A slot map of which only this is known: equal steps have equal slots, within the ring."""

    run: Run
    asked: list[tuple[SymInt, SymInt]]

    def __call__(self, step: SymInt, ring: SymbolicRing) -> SymInt:
        slot = self.run.fresh("slot")
        self.run.assume(slot >= 0, slot < ring.slots)
        for other, its_slot in self.asked:
            self.run.assume(implies(self.run, step == other, slot == its_slot))
        self.asked.append((step, slot))
        return slot


@dataclass(frozen=True, slots=True)
class AnyModules:
    """The module that each step of a period runs, of which only this is known: equal steps run
    equal modules, and modules are numbers from 0."""

    run: Run
    asked: list[tuple[SymInt, SymInt]]

    def __call__(self, step: SymInt) -> SymInt:
        module = self.run.fresh("module")
        self.run.assume(module >= 0)
        for other, its_module in self.asked:
            self.run.assume(implies(self.run, step == other, module == its_module))
        self.asked.append((step, module))
        return module


@dataclass(frozen=True, slots=True)
class NextUserAt:
    """The next user of one slot at some steps; asked for another slot or step, anything."""

    run: Run
    slot: SymInt
    known: tuple[tuple[SymInt, SymInt], ...]

    def __call__(self, slot: Any, step: Any) -> SymInt:
        for at, user in self.known:
            difference = step - at
            if not difference.terms and difference.constant == 0 and slot == self.slot:
                return user
        return self.run.fresh("unasked")


SlotOf = Callable[[Any, SymbolicRing], Any]


def next_users(
    run: Run,
    ring: SymbolicRing,
    slot_of: SlotOf,
    slot: SymInt,
    at: list[Any],
    points: list[Any],
) -> list[SymInt]:
    """For each step in ``at`` a number that is, by the word's definition, the step which runs
    first from the slot at or after that step, in this period or the next. ``ring.modules`` is
    the number of the period's steps.

    That no user lies between is a statement about every step; it is used for the given points
    and for the users themselves, which is weaker, hence sound."""
    users = [run.fresh("user") for _ in at]
    points = [*points, *users]
    used = [slot_of(point, ring) == slot for point in points]

    def none_in(start: Any, end: Any) -> SymBool:
        between = [both(run, start <= point, point < end) for point in points]
        return both(
            run, *(opposite(run, both(run, b, u)) for b, u in zip(between, used, strict=True))
        )

    for step, user, its_own in zip(at, users, used[len(used) - len(users) :], strict=True):
        run.assume(user >= 0, user < ring.modules, its_own)
        ahead = both(run, user >= step, none_in(step, user))
        wrapped = both(run, user < step, none_in(step, ring.modules), none_in(0, user))
        run.assume(either(run, ahead, wrapped))
    return users
