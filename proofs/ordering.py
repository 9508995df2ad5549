"""Claim 5: the fences of the lowering order every pair of conflicting accesses, for every timing.

An induction over whatever the host issues, refills and runs in any order and number, for one
arbitrary slot s, and apart from it for one arbitrary host block b, which one stream reads.
Executed are the lowering itself and ``order.advance``. The invariant: every access lies behind its
own stream, and the event of s covers every copy into it. Nothing is assumed of what the streams
have waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from proofs.integers import SymBool, SymInt, both
from proofs.obligation import EMPTY, Failure, Goal, Obligation, System
from proofs.slotfile import OneSlot
from proofs.symbolic import Run, maximum
from schedule.operations import COMPUTE, COPY, HOST, Event, Streams
from schedule.properties import BLOCK
from schedule.table import Refill
from schedule.tasks import Join

Clock = Mapping[str, Any]
NOTHING: Clock = {}
HERE = {"s": 1, "t": 1, "m": 2, "b": 2}
OTHER = {**HERE, "t": 0}


@dataclass(frozen=True, slots=True)
class AnyStreams:
    """Copy streams with any assignment of modules to them; ``stream`` is the one at hand. More
    than two need no case of their own: a copy conflicts with one other copy at a time."""

    copies: tuple[str, ...]
    stream: str

    @property
    def names(self) -> tuple[str, ...]:
        return Streams(self.copies).names

    @property
    def shared(self) -> bool:
        return Streams(self.copies).shared

    def of(self, module: Any) -> str:
        del module
        return self.stream


KINDS = {
    "one copy stream": AnyStreams((COPY,), COPY),
    "two copy streams": AnyStreams((COPY, "copy 1"), COPY),
    "compute stream and a copy stream": AnyStreams((COMPUTE, COPY), COMPUTE),
    "copy stream and compute stream": AnyStreams((COMPUTE, COPY), COPY),
    "copies on the compute stream": AnyStreams((COMPUTE,), COMPUTE),
}


class Fixed(dict[Any, Any]):
    """A table with known keys; ``put`` makes a new one."""

    def put(self, key: Any, value: Any) -> Fixed:
        return Fixed({**self, key: value})


@dataclass(frozen=True, slots=True)
class OneClock:
    """Accesses to one slot, or to one host block. Another's conflicts are found where that is
    the one."""

    slot: SymInt
    value: Clock

    def __getitem__(self, slot: Any) -> Clock:
        return self.value if slot == self.slot else NOTHING

    def put(self, slot: Any, value: Clock) -> OneClock:
        return replace(self, value=value) if slot == self.slot else self


class Ignored:
    """A table that is not looked at here."""

    def __getitem__(self, key: Any) -> Any:
        return NOTHING

    def put(self, key: Any, value: Any) -> Ignored:
        del key, value
        return self


class Zero(Ignored):
    """A table of numbers that are not looked at here."""

    def __getitem__(self, key: Any) -> Any:
        return 0


@dataclass(frozen=True, slots=True)
class Stands:
    """What the events of slots stand for, by the slot's number."""

    modules: OneSlot

    def __getitem__(self, event: Event) -> Any:
        return self.modules[event.number]

    def put(self, event: Event, module: Any) -> Stands:
        return Stands(self.modules.put(event.number, module))


@dataclass(frozen=True, slots=True)
class Records:
    """The latest records: of the slot's event a known one, of another slot's any."""

    run: Run
    names: tuple[str, ...]
    slot: SymInt
    landed: Clock
    others: Fixed

    def __getitem__(self, event: Event) -> Clock:
        if event.name != "landed":
            found: Clock = self.others.get(event, NOTHING)
            return found
        if event.number == self.slot:
            return self.landed
        return {name: self.run.fresh("elsewhere") for name in self.names}

    def put(self, event: Event, clock: Clock) -> Records:
        if event.name != "landed":
            return replace(self, others=self.others.put(event, clock))
        return replace(self, landed=clock) if event.number == self.slot else self


def any_state(run: Run, system: System, streams: AnyStreams, block: bool = False) -> Any:
    """Any state that keeps the invariant, seen at slot s, or at block b.

    The host has waited for nothing: what it waited for reaches a stream when its next operation
    starts, and there any clock is looked at anyway.
    """
    names = streams.names

    def clock(of: str, keys: tuple[str, ...]) -> Clock:
        ticks = {key: run.integer(f"{of}, {key}") for key in keys}
        run.assume(*(tick >= 0 for tick in ticks.values()))
        return ticks

    s, b = run.integer("s"), run.integer("b")
    run.assume(s >= 0, b >= 0)
    nothing: Any = Ignored()
    state = system.order.State(
        clock=Fixed({HOST: NOTHING, **{name: clock(name, names) for name in names}}),
        record=Records(run, names, s, clock("landed", names), Fixed()),
        stands=Stands(OneSlot(run, s, run.integer("stands"))),
        copied=nothing if block else OneClock(s, clock("copied", streams.copies)),
        read=nothing if block else OneClock(s, clock("read", (COMPUTE,))),
        content=OneSlot(run, s, run.integer("content")),
        version=Zero(),  # of a block's versions nothing here depends: that is identity
        written=Zero(),
        reading=OneClock(b, clock("reading", (streams.stream,))) if block else nothing,
    )
    run.assume(invariant(run, streams, state))
    return state


def invariant(run: Run, streams: AnyStreams, state: Any) -> SymBool:
    """Every access lies behind its own stream; the event of s covers every copy into it, and
    stands for the latest."""
    seen = [t for t in (state.copied, state.read, state.reading) if isinstance(t, OneClock)]
    behind = [
        tick <= state.clock[name][name] for table in seen for name, tick in table.value.items()
    ]
    copies = state.copied.value if isinstance(state.copied, OneClock) else NOTHING
    covered = [
        state.record.landed[name] >= tick for name, tick in copies.items() if not streams.shared
    ]
    if copies and not streams.shared:
        covered.append(state.stands.modules.value == state.content.value)
    return both(run, *behind, *covered)


def issue(system: System, state: Any, operations: Any) -> tuple[Any, list[Any]]:
    """The state after the operations, and their conflicts."""
    conflicts: list[Any] = []
    with patch.object(system.order, "max", maximum, create=True):
        for operation in operations:
            state, found = system.order.advance(state, operation)
            conflicts += found
    return state, conflicts


REFILL, RUN_, WRITE = "refill", "run", "write"


def lowered(system: System, what: str, slot: Any, module: Any, streams: AnyStreams) -> Any:
    """The operations of a refill, a run, or the host's write of what the slot holds."""
    program, numbers = system.program, (slot, module)
    if what == RUN_:
        return program.lower_run(slot, module, streams)
    lower = program.lower_refill if what == REFILL else program.lower_write
    return lower(Refill(*numbers), streams)


def step(system: System, streams: AnyStreams, what: str, here: bool) -> Any:
    """A refill of slot s, a run from it or a write of what it holds, or the same of another slot,
    keeps the invariant of s."""

    def body(run: Run) -> Goal:
        state = any_state(run, system, streams)
        s, t, m = (run.integer(name) for name in ("s", "t", "m"))
        run.assume(t >= 0, m >= 0, t == s if here else t != s)
        if here and what != REFILL:
            # That what reads a slot finds its own module is identity, and claim 1's; here it is
            # assumed.
            run.assume(state.content.value == m)
        state, conflicts = issue(system, state, lowered(system, what, t, m, streams))
        if conflicts and here:
            return Failure(conflicts[0].property)
        return invariant(run, streams, state)

    return body


def block(system: System, streams: AnyStreams, what: str) -> Any:
    """A copy of any block keeps the invariant of b; a write of b by the host finds no reader."""

    def body(run: Run) -> Goal:
        state = any_state(run, system, streams, block=True)
        # From or into any slot, call it s; what is wrong with that slot is found by ``step``.
        module = run.integer("b" if what == WRITE else "m")
        state, conflicts = issue(
            system, state, lowered(system, what, run.integer("s"), module, streams)
        )
        if any(conflict.property == BLOCK for conflict in conflicts):
            return Failure(BLOCK)
        return invariant(run, streams, state)

    return body


def joined(system: System, streams: AnyStreams) -> Any:
    """After a join the compute stream covers all that any stream was given."""

    def body(run: Run) -> Goal:
        state = any_state(run, system, streams)
        operations = (*system.program.lower_join(streams), Join(COMPUTE, streams.names))
        _, conflicts = issue(system, state, operations)
        return Failure(conflicts[0].property) if conflicts else True

    return body


def base(system: System) -> Any:
    """Before the first operation nothing was accessed, recorded or waited for."""

    def body(run: Run) -> Goal:
        state = system.order.start()
        keys = [*range(8), COMPUTE, COPY, HOST, Event("ran"), Event("landed", 0)]
        clocks = (state.clock, state.record, state.copied, state.read, state.reading)
        empty = all(table[key] == NOTHING for table in clocks for key in keys)
        empty = empty and all(state.version[key] == state.written[key] == 0 for key in keys)
        modules = (state.content, state.stands)
        return both(run, empty, all(table[key] == EMPTY for table in modules for key in keys))

    return body


def ordering_claim(system: System) -> list[Obligation]:
    """Claim 5: base, and the steps for each way to use streams."""
    found = [Obligation("base", "at first nothing was accessed or recorded", base(system), {})]
    for kind, streams in KINDS.items():
        rows = (
            ("refill", REFILL, True, "a refill comes after all that it conflicts with"),
            ("run", RUN_, True, "a run comes after all that it conflicts with"),
            ("keep", WRITE, True, "a write of what the slot holds comes after its copies and runs"),
            ("refill elsewhere", REFILL, False, "a refill of another slot keeps this one"),
            ("run elsewhere", RUN_, False, "a run from another slot keeps this one"),
        )
        found += [
            Obligation(
                f"{name}, {kind}", text, step(system, streams, what, here), HERE if here else OTHER
            )
            for name, what, here, text in rows
        ]
        text = "the host writes a block after every copy that reads it"
        found += [
            Obligation(
                f"block, {kind}", "a copy keeps every block", block(system, streams, REFILL), HERE
            ),
            Obligation(f"write, {kind}", text, block(system, streams, WRITE), HERE),
            Obligation(f"join, {kind}", "a join covers all", joined(system, streams), HERE),
        ]
    return found
