"""Every interleaving of a small program, step by step on the device: independent of the clocks.

A stream's head may go on when the host has issued it and what it waits for is done. A copy begins
and lands, a run begins and ends, each at any time; the very transition function of ``machine``
says what is wrong with it. Recording, waiting and joining happen as soon as they can: a wait that
is over earlier than it should be is over earliest then, and nothing else can see the difference.

The states are visited breadth first, so the first interleaving that shows a property is a
shortest one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schedule import machine
from schedule.operations import (
    ONE_COPY_STREAM,
    Copy,
    Listing,
    Run,
    Streams,
    Wait,
    Write,
)
from schedule.properties import BLOCK, IDENTITY, JOINED, MEANING, RAW, WAR, WAW
from schedule.queues import Queues
from schedule.ring import EMPTY
from schedule.tasks import Fault, Idle, Join, Tasks, write_out

HAZARDS = {(True, False): RAW, (False, True): WAR, (True, True): WAW, (False, False): RAW}
"""By whether the first and the second of two accesses to one slot are copies. A run may write into
the weights that it reads, and so a second run at that time reads what is being written."""

LIMIT = 200_000
"""States; a program with more is explored to this bound only."""


class Position(NamedTuple):
    """done: by stream, how many of its tasks are done.  begun: by stream, whether the next one
    has begun.  device: the number of the device's state, of which there are few."""

    done: tuple[int, ...]
    begun: tuple[bool, ...]
    device: int


@dataclass(frozen=True, slots=True)
class Explored:
    """What every interleaving showed.

    faults: each with the tasks concerned, the earlier one as issued first; those of the form too.
    states: how many were visited.     complete: whether these were all.
    shortest: by property, a shortest interleaving that shows it: (task number, "begins" | "ends").
    """

    tasks: Tasks
    faults: frozenset[Fault]
    states: int
    complete: bool
    shortest: dict[str, tuple[tuple[int, str], ...]]


def explore(listing: Listing, streams: Streams = ONE_COPY_STREAM, limit: int = LIMIT) -> Explored:
    """Visit the states of a listing from an empty device, up to ``limit`` of them.

    ProgramError if the listing makes no sense.
    """
    return _Explorer(write_out(listing, streams)).explore(limit)


Move = tuple[int, str]


class _Explorer(Queues):
    """The states of one program, and the faults that they show."""

    def __init__(self, written: Tasks) -> None:
        super().__init__(written)
        self.written = written
        self.faults: set[Fault] = set()
        self.new: list[str] = []
        # States of the device and events are few: by number, each is asked about once.
        self.states = [machine.start(len(self.slot))]
        self.numbers = {self.states[0]: 0}
        self.alike: dict[machine.Event, int] = {}
        self.begins = [self._event(number, _begins) for number in range(len(self.operations))]
        self.ends = [self._event(number, _ends) for number in range(len(self.operations))]
        self.events = list(self.alike)
        self.after: dict[tuple[int, int], int] = {}
        self.refusals: dict[tuple[int, int], str | None] = {}

    def _event(self, number: int, made: Callable[[Access, int, int], machine.Event]) -> int:
        """The number of the event with which a copy, a run, or a write that reads a slot begins,
        or ends; of other tasks, none."""
        operation = self.operations[number]
        if not isinstance(operation, Copy | Run | Write) or operation.slot is None:
            return EMPTY
        event = made(operation, self.slot[operation.slot], self.content[number])
        return self.alike.setdefault(event, len(self.alike))

    def effect(self, device: int, event: int) -> int:
        """The device's state after the event."""
        key = (device, event)
        if key not in self.after:
            state = machine.effect(self.states[device], self.events[event])
            if state not in self.numbers:
                self.numbers[state] = len(self.states)
                self.states.append(state)
            self.after[key] = self.numbers[state]
        return self.after[key]

    def refused(self, device: int, event: int) -> str | None:
        """The property that the machine sees violated by the event, or None."""
        key = (device, event)
        if key not in self.refusals:
            found = machine.objection(self.states[device], self.events[event], _no_next_user)
            self.refusals[key] = found.property if found else None
        return self.refusals[key]

    def explore(self, limit: int) -> Explored:
        streams = len(self.queues)
        first = Position((0,) * streams, (False,) * streams, 0)
        first = self.settle(first)
        came_from: dict[Position, tuple[Position, Move] | None] = {first: None}
        shortest: dict[str, tuple[Move, ...]] = {}
        self.note(shortest, came_from, first, ())
        waiting = deque([first])
        while waiting and len(came_from) <= limit:
            position = waiting.popleft()
            for move, after in self.moves(position):
                self.note(shortest, came_from, position, (move,))
                if after not in came_from:
                    came_from[after] = (position, move)
                    waiting.append(after)
        complete = not waiting
        faults = self.faults.union(self.written.faults)
        return Explored(self.written, frozenset(faults), len(came_from), complete, shortest)

    def note(
        self,
        shortest: dict[str, tuple[Move, ...]],
        came_from: dict[Position, tuple[Position, Move] | None],
        position: Position,
        last: tuple[Move, ...],
    ) -> None:
        """Keep the interleaving that led here for the properties that it is the first to show."""
        for name in self.new:
            if name not in shortest:
                moves = list(last)
                step = came_from[position]
                while step is not None:
                    moves.append(step[1])
                    step = came_from[step[0]]
                shortest[name] = tuple(reversed(moves))
        self.new.clear()

    # ---- what may happen

    def settle(self, position: Position) -> Position:
        """The position when all records, waits and joins that can be over are."""
        done, going = list(position.done), True
        while going:
            going = False
            for stream, number in self.heads(done):
                if self.is_over(done, number):
                    self.over(done, number)
                    done[stream], going = done[stream] + 1, True
        return Position(tuple(done), position.begun, position.device)

    def step(self, position: Position, stream: int, device: int) -> Position:
        """The stream's next task is done."""
        done = (*position.done[:stream], position.done[stream] + 1, *position.done[stream + 1 :])
        begun = (*position.begun[:stream], False, *position.begun[stream + 1 :])
        return Position(done, begun, device)

    def moves(self, position: Position) -> Iterator[tuple[Move, Position]]:
        """Every single thing that may happen next on the device, or of the host's own. What begins
        is waited for by nothing, so only an end is followed by records, waits and joins."""
        for stream, number in self.heads(position.done):
            if number in self.at_once:
                continue  # a wait that is not over
            operation, device = self.operations[number], position.device
            if isinstance(operation, Copy | Run) and not position.begun[stream]:
                device = self.begin(position, number, operation)
                begun = (*position.begun[:stream], True, *position.begun[stream + 1 :])
                yield (number, "begins"), Position(position.done, begun, device)
                continue
            if isinstance(operation, Copy | Run):
                device = self.effect(device, self.ends[number])
            elif isinstance(operation, Write):
                self.write(position, number, operation)
            yield (number, "ends"), self.settle(self.step(position, stream, device))

    # ---- what is wrong with it

    def fault(self, name: str, number: int, other: int | None = None) -> None:
        """Of two tasks, the one issued first is the earlier one."""
        if other is None:
            found = Fault(name, number)
        else:
            found = Fault(name, max(number, other), min(number, other))
        if found not in self.faults:
            self.faults.add(found)
            self.new.append(name)

    def accesses(self, position: Position) -> Iterator[tuple[int, Copy | Run]]:
        """The copies and runs that have begun and are not done."""
        for stream, begun in enumerate(position.begun):
            if begun:
                number = self.queues[stream][position.done[stream]]
                operation = self.operations[number]
                assert isinstance(operation, Copy | Run), "what begins"
                yield number, operation

    def begin(self, position: Position, number: int, operation: Copy | Run) -> int:
        """The device after the copy or run began; what the machine says against it."""
        refused = self.refused(position.device, self.begins[number])
        if refused == IDENTITY:
            self.fault(IDENTITY, number)
        others = list(self.accesses(position))
        runs = [one for _, one in (*others, (number, operation)) if isinstance(one, Run)]
        if refused is not None or len(runs) > 1:  # the machine knows of one run at a time
            for other, theirs in others:
                if theirs.slot == operation.slot:
                    pair = (theirs, operation) if other < number else (operation, theirs)
                    first, second = (isinstance(one, Copy) for one in pair)
                    self.fault(HAZARDS[first, second], number, other)
        return self.effect(position.device, self.begins[number])

    def write(self, position: Position, number: int, operation: Write) -> None:
        """The host writes a block: no copy may be reading it. If what it writes is in a slot, it
        reads that as a run would."""
        for other, theirs in self.accesses(position):
            copies = isinstance(theirs, Copy) and not theirs.pageable
            if copies and theirs.module == operation.module:
                self.fault(BLOCK, number, other)
            if theirs.slot == operation.slot:
                self.fault(RAW, number, other)
        if (
            operation.slot is not None
            and self.refused(position.device, self.begins[number]) == IDENTITY
        ):
            self.fault(IDENTITY, number)

    def over(self, done: Sequence[int], number: int) -> None:
        """A wait or join is over: is what it means done?"""
        operation = self.operations[number]
        if isinstance(operation, Wait) and operation.module is not None:
            copies = self.copies(number, operation.event.number)
            recorded = self.copies(self.record.get(number, 0), operation.event.number)
            meant = [self.module(found[-1]) for found in (recorded, copies) if found]
            landed = all(self.is_done(done, other) for other in copies)
            if meant != [operation.module] * 2 or not landed:
                self.fault(MEANING, number)
        elif isinstance(operation, Join):
            for name in operation.streams:
                stream = self.names.index(name) if name in self.names else None
                if stream is not None:
                    self.join(done, number, stream)

    def join(self, done: Sequence[int], number: int, stream: int) -> None:
        """All work that the stream was given before this task must be done."""
        for other in self.queues[stream]:
            work = isinstance(self.operations[other], Copy | Run | Idle)
            if other < number and work and not self.is_done(done, other):
                self.fault(JOINED, number, other)


Access = Copy | Run | Write


def _begins(operation: Access, slot: int, content: int) -> machine.Event:
    copy = isinstance(operation, Copy)
    return machine.CopyBegins(slot, content) if copy else machine.ModuleBegins(slot, content)


def _ends(operation: Access, slot: int, _: int) -> machine.Event:
    return machine.CopyLands(slot) if isinstance(operation, Copy) else machine.ModuleEnds(slot)


def _no_next_user(slot: int, step: int) -> int:
    """Ownership is a property of the schedule, in host order; here only timing is looked at."""
    del slot, step
    return EMPTY
