"""Executes a program's operations one for one, and keeps what each slot holds.

Every operation becomes an action when the model is wrapped; issuing a boundary is a loop over its
actions. What belongs to which boundary, and in which order, was decided by the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.annotate import span
from runtime.arena import Arena
from runtime.device import Action, Streams
from schedule.labels import label
from schedule.operations import Copy, Operation, Record, Run, Wait
from schedule.program import Program, lower_refills
from schedule.ring import EMPTY
from schedule.table import Refill

Bound = tuple[tuple[Operation, Action], ...]


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


class Interpreter:
    """The program of one offload, bound to its arena and its streams."""

    def __init__(
        self, program: Program, slot_of: Sequence[int], arena: Arena, streams: Streams
    ) -> None:
        self.arena, self.streams, self.slot_of = arena, streams, tuple(slot_of)
        self.content = [Content() for _ in arena.slots]
        self.counts = Counts()
        self.log: list[Operation] | None = None
        self.preload = self._bind(program.preload)
        self.enter, self.before, self.begin, self.after, self.leave = (
            tuple(map(self._bind, boundaries))
            for boundaries in (
                program.enter,
                program.before,
                program.begin,
                program.after,
                program.leave,
            )
        )
        self.reload = tuple(
            self._bind(lower_refills((Refill(slot, module),)))
            for module, slot in enumerate(slot_of)
        )
        self.wait = tuple(
            tuple(pair for pair in begin if isinstance(pair[0], Wait)) for begin in self.begin
        )
        self.slot = tuple(self.content[slot] for slot in slot_of)
        self.run_labels = tuple(
            next(label(one) for one in begin if isinstance(one, Run)) for begin in program.begin
        )

    def issue(self, bound: Bound) -> None:
        """Execute the operations, in order."""
        for _, action in bound:
            action()
        if self.log is not None:
            self.log.extend(operation for operation, _ in bound)

    def forget(self) -> None:
        """Take no slot's content for current: the next run of each module loads it again."""
        for content in self.content:
            content.version = -1

    def drop(self) -> None:
        """Give up the actions, and with them the blocks and slots that they hold."""
        self.preload, self.reload, self.wait = (), (), ()
        self.enter = self.before = self.begin = self.after = self.leave = ()

    def holds(self, module: int) -> bool:
        """Whether the module is resident: its slot holds it, as its host master is now."""
        content = self.slot[module]
        return content.module == module and content.version == self.arena.version(module)

    def _bind(self, operations: Iterable[Operation]) -> Bound:
        return tuple((operation, self._action(operation)) for operation in operations)

    def _action(self, operation: Operation) -> Action:
        match operation:
            case Record() | Wait():
                return self.streams.fence(operation)
            case Run(_, _, module):
                return lambda: self.arena.bind(module)
            case Copy(stream, slot, module):
                return self._copy(stream, slot, module)

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
