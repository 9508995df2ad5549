"""Executes any listing on the simulated accelerator: captures, replays and writes too.

A host block's bytes name its module, and how often the host wrote it. A run appends what it reads
to its row, by several kernels, so that a race changes the row; each row must then be what the
listing says in the order in which the host issues it, where everything is done at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import torch

from proofs.cases import cases
from proofs.obligation import System
from schedule.operations import (
    HOST,
    Capture,
    Copy,
    EndCapture,
    Event,
    Issued,
    Listing,
    Operation,
    Record,
    Replay,
    Run,
    Streams,
    Wait,
    Write,
)
from schedule.policy import named
from schedule.ring import Ring
from tests.simdevice.device import start
from tests.simdevice.helpers import DEVICE, stream

SIZE, READS, BITS = 4, 2, 5
NOTHING, WRITTEN, RAN_BIT = 0, 8, 16
"""Elements a block; how often a run reads its slot; bits a value. What a slot holds at first, what
a write of the host adds to it, and the bit that a run changes in its weights."""


def value(module: int) -> int:
    """What the block's bytes say at first."""
    assert module < WRITTEN
    return 1 + module


def append(row: int, read: int) -> int:
    """The row after a run that read this."""
    for _ in range(READS):
        row = (row << BITS) + read
    return row


Rows = dict[int, int]
"""By a run's place in the listing, what it read, each time it was done."""


class Expected:
    """What a listing must give: its rows, and what the slots and the written blocks hold in the
    end. named: each run then reads its own module, whatever the slot holds."""

    def __init__(self, listing: Listing, named: bool = False) -> None:
        self._named = named
        self.rows: Rows = {}
        self.slots: dict[int, int] = {}
        self.blocks: dict[int, int] = {}
        self._holds: dict[int, int] = {}
        bodies: dict[str, list[tuple[int, Operation]]] = {}
        captured: str | None = None
        for place, (operation, _) in enumerate(listing):
            match operation:
                case Capture(_, graph):
                    captured, bodies[graph] = graph, []
                case EndCapture():
                    captured = None
                case Replay(_, graph):
                    for at, one in bodies[graph]:
                        self._take(at, one)
                case _ if captured is not None:
                    bodies[captured].append((place, operation))
                case _:
                    self._take(place, operation)

    def results(self) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """The rows without their places, the slots, and the blocks that were written."""
        return list(self.rows.values()), self.slots, self.blocks

    def _take(self, place: int, operation: Operation) -> None:
        match operation:
            case Copy(_, slot, module):
                self.slots[slot] = self.blocks.get(module, value(module))
                self._holds[slot] = module
            case Run(_, slot, module):
                if self._named and self._holds.get(slot) != module:
                    self.slots[slot], self._holds[slot] = value(module), module
                read = self.slots.get(slot, NOTHING)
                self.rows[place] = append(self.rows.get(place, 0), read)
                self.slots[slot] = read ^ RAN_BIT
            case Write(module, slot):
                self.blocks[module] = WRITTEN + self._before(module, slot)

    def _before(self, module: int, slot: int | None) -> int:
        """What a write of the module begins with."""
        if slot is None:
            return self.blocks.get(module, value(module))
        return self.slots.get(slot, NOTHING)


class Executor:
    """One execution of a listing, on streams and in memory of its own."""

    def __init__(self, listing: Listing, streams: Streams) -> None:
        self.listing = listing
        operations = [operation for operation, _ in listing]
        copies = [one for one in operations if isinstance(one, Copy)]
        runs = [one for one in operations if isinstance(one, Run)]
        modules = 1 + max(one.module for one in [*copies, *runs])
        kept = [one.slot for one in operations if isinstance(one, Write) if one.slot is not None]
        slots = 1 + max([*(one.slot for one in [*copies, *runs]), *kept])
        self._blocks = torch.empty(modules, SIZE, dtype=torch.int64).pin_memory()
        places = [at for at, one in enumerate(operations) if isinstance(one, Run)]
        self._rows = torch.zeros(len(places), SIZE, dtype=torch.int64, device=DEVICE)
        self._slots = torch.full((slots, SIZE), NOTHING, dtype=torch.int64, device=DEVICE)
        self.blocks, self.slots = list(self._blocks), list(self._slots)
        self.rows = dict(zip(places, self._rows, strict=True))
        for module, block in enumerate(self.blocks):
            block.fill_(value(module))
        self.streams = {name: stream() for name in streams.names}
        self._aside = stream()
        self.events: dict[Event, torch.Event] = {}
        names = [one.graph for one in operations if isinstance(one, Capture)]
        self.graphs = {name: torch.accelerator.Graph() for name in names}
        self.recorded: set[Event] = set()
        torch.accelerator.synchronize()

    def execute(self) -> tuple[Rows, dict[int, int], dict[int, int]]:
        """The rows, the slots and the blocks. RuntimeError: what the device refused first."""
        try:
            for place, issued in enumerate(self.listing):
                self._issue(place, issued)
        except RuntimeError:
            for graph in self.graphs.values():
                graph.reset()  # its capture is given up
            raise
        torch.accelerator.synchronize()
        slots, blocks = (dict(enumerate(_numbers(of))) for of in (self._slots, self._blocks))
        return dict(zip(self.rows, _numbers(self._rows), strict=True)), slots, blocks

    def _issue(self, place: int, issued: Issued) -> None:
        operation = issued.operation
        if isinstance(operation, Wait) and operation.stream == HOST:
            self._event(operation.event).synchronize()
            return
        if isinstance(operation, Write):
            self._write(operation)
            return
        with self.streams[operation.stream] as on:
            match operation:
                case Copy():
                    self._copy(operation)
                case Run(_, slot, _):
                    self._run(self.rows[place], self.slots[slot])
                case Record(_, event):
                    self.recorded.add(event)
                    on.record_event(self._event(event))
                case Wait(_, event):
                    on.wait_event(self._event(self._meant(event)))
                case Capture(_, graph):
                    self.graphs[graph].capture_begin()
                case EndCapture(_, graph):
                    self.graphs[graph].capture_end()
                case Replay(_, graph):
                    self.graphs[graph].replay()

    def _copy(self, copy: Copy) -> None:
        block = self.blocks[copy.module]
        source = block.clone() if copy.pageable else block
        self.slots[copy.slot].copy_(source, non_blocking=True)

    @staticmethod
    def _run(row: torch.Tensor, slot: torch.Tensor) -> None:
        for _ in range(READS):
            row.mul_(1 << BITS).add_(slot)
        slot.bitwise_xor_(RAN_BIT)

    def _write(self, write: Write) -> None:
        block = self.blocks[write.module]
        if write.slot is not None:
            with self._aside:  # which waits for nothing
                block.copy_(self.slots[write.slot])
        block.add_(WRITTEN)

    def _event(self, event: Event) -> torch.Event:
        if event not in self.events:
            self.events[event] = torch.Event(device=DEVICE)
        return self.events[event]

    def _meant(self, event: Event) -> Event:
        """In a graph a wait for what the graph has not recorded can only mean the event outside."""
        inside = event.graph is None or event in self.recorded
        return event if inside else replace(event, graph=None)


def _numbers(found: torch.Tensor) -> Iterable[int]:
    """By row the number that all of its elements are, or -1 where they differ."""
    for row in found.cpu().tolist():
        yield row[0] if len(set(row)) == 1 else -1


def right(listing: Listing, streams: Streams, expected: Expected) -> bool:
    """Whether one execution gives what is expected."""
    rows, slots, blocks = Executor(listing, streams).execute()
    held = expected.slots.items() <= slots.items() and expected.blocks.items() <= blocks.items()
    return rows == expected.rows and held


def outcome(listing: Listing, streams: Streams, named: bool = False) -> str:
    """Of one execution: "right", "wrong", or the device's error, without the streams' numbers.

    named: what is right is by name: each run reads its module, whatever the listing brings.
    """
    try:
        good = right(listing, streams, Expected(listing, named))
    except RuntimeError as error:
        return re.sub(r"stream \d+", "stream", str(error).splitlines()[0])
    return "right" if good else "wrong"


def replay_line(policy: str, ring: Ring, case: str, seed: int, adversary: str) -> str:
    """A shell line that runs this seed alone."""
    arguments = (policy, ring.modules, ring.slots, case, seed, adversary)
    import_ = "from tests.simdevice.executor import replay"
    return f'python -c "{import_}; print(replay{arguments})"'


def replay(policy: str, modules: int, slots: int, name: str, seed: int, adversary: str) -> str:
    """What the program with this name gives under this seed."""
    torch.set_num_threads(1)
    sim, ring = start(), Ring(modules, slots)
    (case,) = (one for one in cases(System(), named(policy), ring) if one.name == name)
    with torch.no_grad(), sim.steps(seed, adversary):
        return outcome(case.listing, case.streams)
