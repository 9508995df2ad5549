"""Executes a program's operations one for one, and keeps what each slot holds.

Every operation becomes an action when the model is wrapped; issuing a boundary is a loop over its
actions. What belongs to which boundary, and in which order, was decided by the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from runtime.annotate import span
from runtime.arena import Arena
from runtime.device import Action, Streams
from runtime.host import pieces
from runtime.sets import DeviceSet
from schedule.errors import OffloadError
from schedule.graphs import Graph
from schedule.guard import Copied, is_resident
from schedule.labels import label
from schedule.operations import COMPUTE, Copy, Issued, Listing, Operation, Record, Run, Wait, Write
from schedule.program import RELOAD, RESUME, WRITE, Program
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Moment, Schedule

Bound = tuple[tuple[Issued, Action], ...]
HALVES = (BEFORE, RUN, AFTER, RELOAD, RESUME, WRITE)


@dataclass(slots=True)
class Counts:
    """Copies issued so far; ``redundant``: into a slot that held just that already."""

    copies: int = 0
    bytes_copied: int = 0
    redundant: int = 0

    def copy(self) -> Counts:
        """As they are now."""
        return replace(self)

    def add(self, other: Counts) -> None:
        """So many more."""
        self.copies += other.copies
        self.bytes_copied += other.bytes_copied
        self.redundant += other.redundant

    def set_back(self, to: Counts) -> Counts:
        """What they were; how many came since."""
        since = Counts(
            self.copies - to.copies,
            self.bytes_copied - to.bytes_copied,
            self.redundant - to.redundant,
        )
        self.copies, self.bytes_copied, self.redundant = to.copies, to.bytes_copied, to.redundant
        return since


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of the period, with its actions.

    position: in the period.                     module, slot: what runs, and from where.
    label: the run's, for a profiler.            weights: its Parameters over that slot.
    halves: the operations of each half of its boundary, and of what is outside the schedule.
    """

    position: int
    module: int
    slot: int
    label: str
    weights: DeviceSet
    halves: Mapping[str, Bound]


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass of the period: by module its step, and what begins and ends it."""

    enter: Bound
    steps: tuple[Step, ...]
    leave: Bound


class Interpreter:
    """The program of one offload, bound to its arena and its streams."""

    def __init__(
        self,
        program: Program,
        schedule: Schedule,
        arena: Arena,
        streams: Streams,
        chunk: int | None = None,
    ) -> None:
        self.arena, self.streams, self._chunk = arena, streams, chunk
        self.last = [Copied()] * len(arena.slots)
        self._issued: dict[int, Copied] = {}
        self.counts = Counts()
        self.log: list[Issued] | None = None
        self.graph: Graph | None = None  # the one that is captured now
        self.bind(program, schedule)

    def bind(self, program: Program, schedule: Schedule) -> None:
        """Make the actions, over the arena's blocks, slots and sets as they are now."""
        parts = program.parts()
        (preload,) = parts[PRELOAD]
        self.preload = self._bind(preload)
        runs = [moment for moment in schedule.walk(1) if moment.half == RUN]
        steps = [self._step(parts, run) for run in runs]
        ends = zip(parts[ENTER], parts[LEAVE], strict=True)
        modules = schedule.ring.modules
        self.passes = tuple(
            Pass(self._bind(enter), tuple(steps[start : start + modules]), self._bind(leave))
            for start, (enter, leave) in zip(range(0, len(steps), modules), ends, strict=True)
        )

    def _step(self, parts: dict[str, tuple[Listing, ...]], run: Moment) -> Step:
        return Step(
            position=run.step,
            module=run.module,
            slot=run.slot,
            label=label(Run(COMPUTE, run.slot, run.module)),
            weights=self.arena.sets[run.module, run.slot],
            halves={half: self._bind(parts[half][run.step]) for half in HALVES},
        )

    def issue(self, bound: Bound) -> None:
        """Execute the operations, in order. If one of them fails, none of them is traced, and
        what they copied counts for nothing: the fences that belong to a copy come with it, and an
        interrupt may end this function at any line."""
        if not bound:
            return
        if self._issued:
            self._issued.clear()
        if self.graph is not None:
            bound = self._captured(self.graph, bound)
        for _, action in bound:
            action()
        if self._issued:
            for slot, copied in self._issued.items():
                self.last[slot] = copied
        if self.log is not None:
            self.log.extend(issued for issued, _ in bound)

    def unbind(self, step: Step) -> None:
        """Show the host masters in the module, with what the module wrote into its weights."""
        written = step.weights.was_written
        if written and self.graph is None:
            self.issue(step.halves[WRITE])
        elif written:
            self.arena.drop_writes(step.weights)
        self.arena.unbind(step.weights)
        if written and self.graph is not None:
            name = self.arena.layouts[step.module].name
            raise OffloadError(
                f"{name} writes into its weights while it runs, which a replay would lose: run it "
                f"without the capture, or leave it out of layers"
            )

    def forget(self) -> None:
        """Take no slot's content for current: the next run of each module loads it again."""
        self.last = [Copied(last.module) for last in self.last]

    def start(self) -> int:
        """Take every slot for empty, and issue the preload. Returns how many copies it has."""
        self.last = [Copied() for _ in self.last]
        before = self.counts.copies
        self.issue(self.preload)
        return self.counts.copies - before

    def drop(self) -> None:
        """Give up the actions, and with them the blocks and slots that they hold."""
        self.preload, self.passes = (), ()

    def holds(self, step: Step) -> bool:
        """Whether the module is resident: its slot holds it, as its host master is now."""
        return is_resident(self.last[step.slot], step.module, self.arena.version(step.module))

    def _bind(self, listing: Listing) -> Bound:
        return tuple((issued, self.action(issued.operation)) for issued in listing)

    def _captured(self, graph: Graph, bound: Bound) -> Bound:
        """What the graph takes of these, as actions: its own fences, the same copies and runs, and
        before each run the device's own look at the slot."""
        found = []
        for issued, action in bound:
            graph, own = graph.take(issued)
            if own is None:
                continue
            found.append((own, action))
            match own.operation:
                case Record() | Wait():
                    found[-1] = (own, self.streams.fence(own.operation))
                case Run(_, slot, module):
                    found[-1] = (own, self._looked_at(module, slot, action))
        self.graph = graph
        return tuple(found)

    def _looked_at(self, module: int, slot: int, action: Action) -> Action:
        def run() -> None:
            self.arena.require_on_device(module, slot)
            action()

        return run

    def action(self, operation: Operation) -> Action:
        """What executes this operation."""
        match operation:
            case Record() | Wait():
                return self.streams.fence(operation)
            case Run(_, slot, module):
                weights = self.arena.sets[module, slot]
                return lambda: self.arena.bind(weights)
            case Copy(stream, slot, module):
                return self._copy(stream, slot, module)
            case Write(module, slot):
                written = self.arena.sets[module, slot]
                return lambda: self.arena.keep_writes(written)

    def _copy(self, stream: str, slot: int, module: int) -> Action:
        size = self.arena.layouts[module].size
        block, target = self.arena.blocks[module], self.arena.slots[slot]
        copy = self.streams.copy(stream, tuple(pieces(block, target, self._chunk)))
        counts, arena = self.counts, self.arena
        name = label(Copy(stream, slot, module))

        def action() -> None:
            version = arena.version(module)
            before = self._issued.get(slot, self.last[slot])
            counts.redundant += is_resident(before, module, version)
            self.last[slot] = Copied()  # until all is issued the slot holds nothing whole
            with span(name):
                copy()
            self._issued[slot] = Copied(module, version)
            counts.copies += 1
            counts.bytes_copied += size

        return action
