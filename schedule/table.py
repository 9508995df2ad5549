"""A schedule: a policy worked out for one ring, as plain immutable data.

Everything else reads this one object: ``verify`` checks it, ``machine`` runs it,
``program`` lowers it to operations on streams, and the runtime executes those.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schedule.errors import ScheduleError
from schedule.ring import EMPTY, Ring, inside


class Refill(NamedTuple):
    """A host-to-device copy of a module's weights into a slot."""

    slot: int
    module: int


Refills = tuple[Refill, ...]

PRELOAD, ENTER, BEFORE, RUN, AFTER, LEAVE = "preload", "enter", "before", "run", "after", "leave"


class Boundary(NamedTuple):
    """Where refills are issued.

    half: PRELOAD, ENTER, BEFORE, AFTER or LEAVE.
    step: of the period, the one that the half belongs to: for ENTER the first of its pass, for
          LEAVE the last, for PRELOAD 0.
    """

    half: str
    step: int

    def text(self, modules: int) -> str:
        """This boundary in words, for a ring of that many modules."""
        number, module = divmod(self.step, modules)
        return {
            PRELOAD: "preload",
            ENTER: f"pass {number}, on enter",
            LEAVE: f"pass {number}, on leave",
            RUN: f"pass {number}, module {module}",
            BEFORE: f"pass {number}, before module {module}",
            AFTER: f"pass {number}, after module {module}",
        }.get(self.half, f"{self.half} {self.step}")


def around(step: int, modules: int) -> tuple[Boundary, ...]:
    """The boundaries of a step of a period, and between them its run as one of half RUN, in host
    order. The preload is before all of them."""
    enter = (Boundary(ENTER, step),) if step % modules == 0 else ()
    leave = (Boundary(LEAVE, step),) if step % modules == modules - 1 else ()
    return (*enter, *(Boundary(half, step) for half in (BEFORE, RUN, AFTER)), *leave)


class Moment(NamedTuple):
    """One thing that happens in a walk over a schedule, in host order.

    half: RUN when the module runs out of its slot, else where the refill was issued
          (PRELOAD, ENTER, BEFORE, AFTER or LEAVE).
    step: how many modules ran since the start, the one that this boundary belongs to
          not counted; it grows across passes.
    """

    half: str
    step: int
    slot: int
    module: int

    def text(self, modules: int) -> str:
        """This moment in words, for a ring of that many modules."""
        if self.half == RUN:
            number = self.step // modules
            return f"pass {number}: module {self.module} runs from slot {self.slot}"
        where = Boundary(self.half, self.step).text(modules)
        return f"{where}: refill of module {self.module} into slot {self.slot}"


TABLES = ("enter", "before", "after", "leave")
"""The tables of a schedule that have an entry of refills for each boundary."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which slot each step uses, and which refills each boundary issues.

    ring:    the sizes; N modules, K slots.
    policy:  the name of the policy that it came from.
    slot_of: by step; a step is a position in the period (pass and module), so its length is
             N times the number of passes in a period, and step p runs module p % N.
    preload: the refills before the first pass.
    enter, leave:  by pass of the period.
    before, after: by step.
    Raises ScheduleError when a table has the wrong length or names a slot or module outside
    the ring. Whether the schedule is safe is another question: ``verify`` answers it.
    """

    ring: Ring
    policy: str
    slot_of: tuple[int, ...]
    preload: Refills
    enter: tuple[Refills, ...]
    before: tuple[Refills, ...]
    after: tuple[Refills, ...]
    leave: tuple[Refills, ...]

    def __post_init__(self) -> None:
        self._freeze()
        modules = self.ring.modules
        steps = len(self.slot_of)
        if steps == 0 or steps % modules:
            raise ScheduleError(
                f"slot_of has {steps} steps; give one slot a module and pass, "
                f"a positive multiple of {modules}"
            )
        for name, length in (
            ("enter", steps // modules),
            ("before", steps),
            ("after", steps),
            ("leave", steps // modules),
        ):
            if len(getattr(self, name)) != length:
                raise ScheduleError(
                    f"{name} has {len(getattr(self, name))} entries; this period needs {length}"
                )
        refills = [*self.preload, *self._refills()]
        slots = [*self.slot_of, *(refill.slot for refill in refills)]
        if not inside(slots, self.ring.slots) or not inside([r.module for r in refills], modules):
            self._check_each()

    def _freeze(self) -> None:
        """Lists become tuples and pairs become refills: a verified schedule can't be changed."""
        try:
            object.__setattr__(self, "slot_of", tuple(self.slot_of))
            object.__setattr__(self, "preload", _frozen(self.preload))
            for name in TABLES:
                object.__setattr__(self, name, tuple(map(_frozen, getattr(self, name))))
        except (TypeError, ValueError) as error:
            raise ScheduleError(
                f"a table of policy {self.policy} is malformed ({error}); slot_of is a sequence of "
                f"slots, every other table one of refills, (slot, module), for each boundary"
            ) from error

    def _refills(self) -> Iterator[Refill]:
        """Every refill of a period."""
        for name in TABLES:
            for refills in getattr(self, name):
                yield from refills

    def _check_each(self) -> None:
        """ScheduleError for the first slot or module outside the ring, with its place."""
        for step, slot in enumerate(self.slot_of):
            _inside("slot", slot, self.ring.slots, f"slot_of[{step}] of policy {self.policy}")
        for name in TABLES:
            for position, refills in enumerate(getattr(self, name)):
                self._check(refills, f"{name}[{position}] of policy {self.policy}")
        self._check(self.preload, f"preload of policy {self.policy}")

    def _check(self, refills: Refills, where: str) -> None:
        for slot, module in refills:
            _inside("slot", slot, self.ring.slots, where)
            _inside("module", module, self.ring.modules, where)

    @property
    def period(self) -> int:
        """After how many passes the schedule repeats."""
        return len(self.slot_of) // self.ring.modules

    @property
    def copies(self) -> int:
        """How many refills one period issues, the preload apart."""
        return sum(len(refills) for name in TABLES for refills in getattr(self, name))

    def walk(self, periods: int) -> Iterator[Moment]:
        """All moments in host order: the preload, then that many periods."""
        modules, steps = self.ring.modules, len(self.slot_of)
        for slot, module in self.preload:
            yield Moment(PRELOAD, 0, slot, module)
        for start in range(0, periods * steps, modules):
            first = start % steps
            for slot, module in self.enter[first // modules]:
                yield Moment(ENTER, start, slot, module)
            for index in range(modules):
                step, position = start + index, first + index
                for slot, module in self.before[position]:
                    yield Moment(BEFORE, step, slot, module)
                yield Moment(RUN, step, self.slot_of[position], index)
                for slot, module in self.after[position]:
                    yield Moment(AFTER, step, slot, module)
            for slot, module in self.leave[first // modules]:
                yield Moment(LEAVE, start + modules - 1, slot, module)

    def slot_sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """By slot, the size of the largest module that runs from it or is copied into it, for
        sizes by module."""
        found = [0] * self.ring.slots
        for moment in self.walk(1):
            found[moment.slot] = max(found[moment.slot], sizes[moment.module])
        return tuple(found)

    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each slot, the steps of one period that run from it, ascending."""
        users: list[list[int]] = [[] for _ in range(self.ring.slots)]
        for step, slot in enumerate(self.slot_of):
            users[slot].append(step)
        return tuple(tuple(steps) for steps in users)

    def kept(self) -> tuple[int, ...]:
        """The modules that have a slot for themselves, ascending: no other one runs from a slot
        of theirs or is copied into it."""
        shares: dict[int, set[int]] = {}
        for moment in self.walk(1):
            shares.setdefault(moment.slot, set()).add(moment.module)
        shared = {module for modules in shares.values() if len(modules) > 1 for module in modules}
        return tuple(module for module in range(self.ring.modules) if module not in shared)

    def next_user(self, users: Sequence[Sequence[int]], slot: int, step: int) -> int:
        """The module that runs first from the slot at or after the step, across the ends of
        pass and period; EMPTY if none ever does. ``users`` is ``self.users()``."""
        if not users[slot]:
            return EMPTY
        found = bisect_left(users[slot], step % len(self.slot_of))
        return users[slot][found % len(users[slot])] % self.ring.modules


def _frozen(refills: Iterable[Sequence[int]]) -> Refills:
    """Pairs as refills, in a tuple."""
    if type(refills) is tuple and (not refills or set(map(type, refills)) == {Refill}):
        return refills
    return tuple(Refill(*pair) for pair in refills)


def _inside(word: str, value: object, size: int, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(
            f"{where}: {word} {value!r} is a {type(value).__name__}; give an integer"
        )
    if not 0 <= value < size:
        raise ScheduleError(f"{where}: {word} {value} is outside this ring: 0 .. {size - 1}")
