"""Executes a program's operations one for one, and keeps what each slot holds.

Every operation becomes an action when the model is wrapped; issuing a boundary is a loop over its
actions. What belongs to which boundary, and in which order, was decided by the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.annotate import span
from runtime.arena import Arena, DeviceSet
from runtime.device import Action, Streams
from schedule.labels import label
from schedule.operations import COMPUTE, Copy, Issued, Listing, Operation, Record, Run, Wait, Write
from schedule.program import BACK, RELOAD, WRITE, Program
from schedule.ring import EMPTY
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Moment, Schedule

Bound = tuple[tuple[Issued, Action], ...]


@dataclass(slots=True)
class Content:
    """What a slot holds: a module, and the version of the host master that was copied."""

    module: int = EMPTY
    version: int = -1


@dataclass(slots=True)
class Counts:
    """Copies issued so far; ``redundant``: into a slot that held just that already."""

    copies: int = 0
    bytes_copied: int = 0
    redundant: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step of the period, with its actions.

    position: in the period.                     module, slot: what runs, and from where.
    label: the run's, for a profiler.
    weights: its Parameters over that slot.      content: what the slot holds.
    before, begin, after: its boundary's operations.
    reload: the refill of the module outside the schedule.     wait: begin without its run.
    write: the host's write of what the module wrote into its weights.
    """

    position: int
    module: int
    slot: int
    label: str
    weights: DeviceSet
    content: Content
    before: Bound
    begin: Bound
    after: Bound
    reload: Bound
    wait: Bound
    write: Bound


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """One pass of the period: by module its step, and what begins and ends it."""

    enter: Bound
    steps: tuple[Step, ...]
    leave: Bound


class Interpreter:
    """The program of one offload, bound to its arena and its streams."""

    def __init__(
        self, program: Program, schedule: Schedule, arena: Arena, streams: Streams
    ) -> None:
        self.arena, self.streams = arena, streams
        self.content = [Content() for _ in arena.slots]
        self.counts = Counts()
        self.log: list[Issued] | None = None
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
        bound = {
            half: self._bind(parts[half][run.step])
            for half in (BEFORE, RUN, AFTER, RELOAD, BACK, WRITE)
        }
        return Step(
            position=run.step,
            module=run.module,
            slot=run.slot,
            label=label(Run(COMPUTE, run.slot, run.module)),
            weights=self.arena.sets[run.module, run.slot],
            content=self.content[run.slot],
            before=bound[BEFORE],
            begin=bound[RUN],
            after=bound[AFTER],
            reload=bound[RELOAD],
            wait=bound[BACK],
            write=bound[WRITE],
        )

    def issue(self, bound: Bound) -> None:
        """Execute the operations, in order. If one of them fails, none of them is traced."""
        for _, action in bound:
            action()
        if self.log is not None:
            self.log.extend(issued for issued, _ in bound)

    def unbind(self, step: Step) -> None:
        """Show the host masters in the module, with what the module wrote into its weights."""
        if step.weights.was_written:
            self.issue(step.write)
        self.arena.unbind(step.weights)

    def forget(self) -> None:
        """Take no slot's content for current: the next run of each module loads it again."""
        for content in self.content:
            content.version = -1

    def drop(self) -> None:
        """Give up the actions, and with them the blocks and slots that they hold."""
        self.preload, self.passes = (), ()

    def holds(self, step: Step) -> bool:
        """Whether the module is resident: its slot holds it, as its host master is now."""
        content, module = step.content, step.module
        return content.module == module and content.version == self.arena.version(module)

    def _bind(self, listing: Listing) -> Bound:
        return tuple((issued, self._action(issued.operation)) for issued in listing)

    def _action(self, operation: Operation) -> Action:
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
        block, target = self.arena.blocks[module], self.arena.slots[slot][:size]
        copy = self.streams.copy(stream, target, block)
        content, counts, arena = self.content[slot], self.counts, self.arena
        name = label(Copy(stream, slot, module))

        def action() -> None:
            version = arena.version(module)
            counts.redundant += content.module == module and content.version == version
            content.module = EMPTY  # until the copy is issued the slot holds nothing whole
            with span(name):
                copy()
            content.module, content.version = module, version
            counts.copies += 1
            counts.bytes_copied += size

        return action
