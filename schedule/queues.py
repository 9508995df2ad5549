"""A program as the device has it: a queue a stream, and what each task waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import getitem

from schedule.operations import HOST, Copy, Event, Record, Run, Wait, Write
from schedule.ring import EMPTY
from schedule.tasks import Join, Tasks


class Queues:
    """names, queues: the streams, the host first, and the numbers of their tasks.
    slot: the slots that the program uses, numbered from 0.
    record: by wait, the latest record of its event at the time of the call.
    at_once: the tasks that are over as soon as they can be: records, waits and joins.
    content: by task, a number for the module that it is about and the version of its block.
    """

    def __init__(self, written: Tasks) -> None:
        self.operations = [task.operation for task in written.tasks]
        slots = {
            one.slot
            for one in self.operations
            if isinstance(one, Copy | Run | Write) and one.slot is not None
        }
        self.slot = {slot: number for number, slot in enumerate(sorted(slots))}
        queues: dict[str, list[int]] = {HOST: []}
        for number, operation in enumerate(self.operations):
            queues.setdefault(operation.stream, []).append(number)
        self.names = list(queues)
        self.queues = list(queues.values())
        # A task that the host never reaches ends each queue; at the end the host has issued all.
        self._next = [(*queue, len(self.operations) + 1) for queue in self.queues]
        self._reached = (*self.queues[0], len(self.operations))
        self._place = {n: (s, i) for s, q in enumerate(self.queues) for i, n in enumerate(q)}
        self.record = dict(self._latest_records())
        self.at_once = {
            number
            for number, operation in enumerate(self.operations)
            if isinstance(operation, Record | Join | Wait)
        }
        self.content = list(self._contents())

    def _latest_records(self) -> Iterator[tuple[int, int]]:
        latest: dict[Event, int] = {}
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Record):
                latest[operation.event] = number
            elif isinstance(operation, Wait) and operation.event in latest:
                yield number, latest[operation.event]

    def _contents(self) -> Iterator[int]:
        """The version is how often the host has written the block until the call."""
        written: Counter[int] = Counter()
        numbers: dict[tuple[int, int], int] = {}
        for operation in self.operations:
            module = getattr(operation, "module", None)
            version = (EMPTY, 0) if module is None else (module, written[module])
            yield numbers.setdefault(version, len(numbers))
            if isinstance(operation, Write):
                written[operation.module] += 1

    def heads(self, done: Sequence[int]) -> list[tuple[int, int]]:
        """(stream, task number) of each stream's next task that the host has issued."""
        reached = self._reached[done[0]]
        found = enumerate(map(getitem, self._next, done))
        return [head for head in found if head[1] <= reached]

    def is_done(self, done: Sequence[int], number: int) -> bool:
        """Whether the task is among the first ``done`` ones of its stream."""
        stream, place = self._place[number]
        return done[stream] > place

    def is_over(self, done: Sequence[int], number: int) -> bool:
        """Whether a record, a join, or a wait that waits for nothing more, is next."""
        return number in self.at_once and (
            number not in self.record or self.is_done(done, self.record[number])
        )

    def copies(self, number: int, slot: int | None) -> list[int]:
        """The copies into the slot that were issued before this task."""
        return [
            other
            for other, theirs in enumerate(self.operations[:number])
            if isinstance(theirs, Copy) and theirs.slot == slot
        ]

    def module(self, number: int) -> int:
        """A copy's module."""
        operation = self.operations[number]
        assert isinstance(operation, Copy), "a copy's module"
        return operation.module
