"""Passes, or pieces of them, captured into a graph of the device, and replayed.

A replay runs no Python: no hook issues a refill, and no guard looks. So the graph holds the refills
too; the host compares what the slots hold with what the graph takes for granted before each replay;
and in the graph the device itself asserts, by the numbers in a module's bytes, that a slot holds
the module which is about to run from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from runtime.annotate import span
from runtime.device import AcceleratorStreams, Action
from runtime.hooks import OFF, RAISE, Standing
from runtime.interpreter import Bound, Counts
from runtime.leaves import is_wrapper
from runtime.log import log
from runtime.misses import not_resident
from runtime.select import tensors_that_stay
from runtime.sizes import counted
from schedule.errors import OffloadError
from schedule.graphs import CAPTURE, REPLAY, Graph, held_at
from schedule.guard import Copied, missing
from schedule.labels import PREFIX
from schedule.operations import Capture, EndCapture, Issued, Operation, Operations, Replay, Run
from schedule.program import RELOAD
from schedule.table import PRELOAD, RUN, Boundary

if TYPE_CHECKING:
    from runtime.offloaded import Offloaded


def _address(tensor: torch.Tensor) -> int:
    """Of its bytes, or of the object that is made of others."""
    return id(tensor) if is_wrapper(tensor) else tensor.data_ptr()


class DeviceGraph(Protocol):
    """What every device type's graph of torch has."""

    def capture_begin(self) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None: ...
    def reset(self) -> None: ...


def new_graph(device: torch.device) -> DeviceGraph:
    """An empty graph of the device: of its own type (CUDAGraph, NPUGraph, XPUGraph), or torch's
    for any accelerator. OffloadError where there is neither."""
    own = getattr(torch.get_device_module(device), f"{device.type.upper()}Graph", None)
    made = own or getattr(torch.accelerator, "Graph", None)
    if device.type == "cpu" or made is None:
        raise OffloadError(
            f"{device} has no graphs to capture into; call the function itself, or compile it"
        )
    graph: DeviceGraph = made()
    return graph


@dataclass(frozen=True, slots=True)
class Taken:
    """One capture.

    graph: its operations.      device: the device's own graph.
    added, counts: what one replay adds to the counts; ``added.arrived`` is where it ends.
    """

    graph: Graph
    device: DeviceGraph
    added: Standing
    counts: Counts


class Captured:
    """What ``Offloaded.capture`` captured, to be replayed as often as one likes.

    output: what the function returned: tensors that each replay writes anew.
    """

    def __init__(self, offloaded: Offloaded, taken: Taken, output: Any) -> None:
        self.output = output
        self._offloaded, self._taken = offloaded, taken
        slots = sorted(set(offloaded.schedule.slot_of))
        replay = taken.graph.lower_replay(slots, offloaded.program.streams)
        self._replay = _bound(offloaded, REPLAY, replay, taken.device)
        self._modules = sorted({run.module for run in _runs(taken.graph)})
        self._needs, self._leaves = taken.graph.needs, taken.graph.leaves
        self._rest = list(tensors_that_stay(offloaded.selection))
        self._there = self._addresses()
        self._ended = ""

    @property
    def graph(self) -> Graph:
        """Its operations, what it needs and what it leaves."""
        return self._taken.graph

    def replay(self) -> None:
        """Do once more what was captured, on the current stream, with the inputs and weights as
        they are now. Slots that hold something else than it takes for granted are loaded first,
        and count as misses; with ``on_miss="raise"`` they are an error. OffloadError after
        ``close()``, after a ``refresh()`` that adopted a change, and inside of a module's run."""
        offloaded, name = self._offloaded, self.graph.name
        hooks, interpreter = offloaded.hooks, offloaded.hooks.interpreter
        version = offloaded.arena.version
        with hooks.lock:
            if self._ended:
                raise OffloadError(f"{name} can't be replayed: {self._ended}")
            hooks.require_idle(f"a replay of {name}")
            for module in self._modules:
                offloaded.arena.require_unchanged(module)
            self._require_rest()
            self._load()
            left = {slot: Copied(module, version(module)) for slot, module in self._leaves.items()}
            for slot in left:
                interpreter.last[slot] = Copied()  # until all is issued it holds nothing whole
            with span(f"{PREFIX} replay {name}"):
                interpreter.issue(self._replay)
            for slot, copied in left.items():
                interpreter.last[slot] = copied
            added, now = self._taken.added, hooks.standing
            hooks.standing = Standing(
                now.runs + added.runs, now.misses + added.misses, added.arrived
            )
            interpreter.counts.add(self._taken.counts)

    def _load(self) -> None:
        """Bring what the graph takes for granted."""
        hooks, interpreter = self._offloaded.hooks, self._offloaded.hooks.interpreter
        if hooks.on_miss == OFF:
            return
        found = missing(self._needs, interpreter.last, self._offloaded.arena.version)
        if found and hooks.on_miss == RAISE:
            step = interpreter.passes[0].steps[found[0]]
            held = interpreter.last[step.slot].module
            raise not_resident(self._offloaded.selection.names, step.module, step.slot, held)
        hooks.misses += len(found)
        _load(self._offloaded, found)

    def _addresses(self) -> list[int | None]:
        """Where the tensors are that stay on the device; None for one that is gone."""
        now = (table.get(name) for table, name, _ in self._rest)
        return [None if tensor is None else _address(tensor) for tensor in now]

    def _require_rest(self) -> None:
        """OffloadError if a tensor that stays on the device is another one by now."""
        now = self._addresses()
        if now != self._there:
            at = next(at for at, one in enumerate(now) if one != self._there[at])
            raise OffloadError(
                f"{self._rest[at][2]} was replaced since {self.graph.name} was captured, which "
                f"reads the one before: write into it in place, or capture it again"
            )

    def end(self, why: str) -> None:
        """It can't be replayed any more, and its memory is given up. No replay is under way."""
        self._ended, self.output, self._replay, self._rest = why, None, (), []
        self._taken.device.reset()

    def __repr__(self) -> str:
        runs = counted(len(self._modules), "module")
        return f"<Captured {self.graph.name} of {runs}{', ended' if self._ended else ''}>"


def by_number(graph: Graph) -> int:
    """For sorting: graphs are numbered as they are captured."""
    return int(graph.name.split()[-1])


def capture(offloaded: Offloaded, function: Callable[[], Any], names: Iterator[str]) -> Captured:
    """Run the function, then capture it into a graph of the next of these names."""
    device, hooks = offloaded.streams.device, offloaded.hooks
    new_graph(device)  # or an error, before anything is done
    _require_locked(offloaded)
    assert isinstance(offloaded.streams, AcceleratorStreams), "what has graphs has streams"
    with hooks.lock:
        hooks.require_idle("a capture")
        stream = torch.Stream(device=device)  # the default one can't be captured
        before = torch.accelerator.current_stream(device)
        stream.wait_stream(before)
        try:
            with stream:
                function()  # kernels are made, memory is reserved, found layers put in order
                taken, output = _take(offloaded, function, next(names))
                if taken.added.misses:
                    # Maybe a piece, which does not end where it began: so it is taken from where
                    # passes come to its first module, that no refill is in it but the schedule's.
                    output = None
                    taken.device.reset()
                    first = next(_runs(taken.graph)).module
                    _load(offloaded, held_at(offloaded.schedule, first).values())
                    taken, output = _take(offloaded, function, next(names))
        finally:
            before.wait_stream(stream)
    try:
        _judge(offloaded, taken)
    except OffloadError:
        taken.device.reset()
        raise
    return Captured(offloaded, taken, output)


def _require_locked(offloaded: Offloaded) -> None:
    """OffloadError if what is copied in each pass is in memory that no graph can copy from."""
    for moment in offloaded.schedule.walk(1):
        copied = moment.half not in (PRELOAD, RUN)
        if copied and not offloaded.placement.is_locked(moment.module):
            raise OffloadError(
                f"{offloaded.selection.names[moment.module]} is in pageable memory, from which no "
                f"graph can copy: offload with pin=True, or with a larger budget"
            )


def _take(offloaded: Offloaded, function: Callable[[], Any], name: str) -> tuple[Taken, Any]:
    """Capture the function, on the current stream. Nothing is executed, so that what the slots hold
    and the counts stay as they were."""
    hooks, interpreter = offloaded.hooks, offloaded.hooks.interpreter
    streams, device = offloaded.program.streams, new_graph(offloaded.streams.device)
    graph = Graph(name)
    last, before, counts = list(interpreter.last), hooks.standing, interpreter.counts.copy()
    logged = len(interpreter.log or ())
    torch.accelerator.synchronize(offloaded.streams.device)
    try:
        begin = graph.lower_begin(streams)
        interpreter.issue(_bound(offloaded, CAPTURE, begin, device))
        interpreter.graph = graph
        output = function()
        graph, interpreter.graph = interpreter.graph, None
        interpreter.issue(_bound(offloaded, CAPTURE, graph.lower_end(streams), device))
    except BaseException:
        if interpreter.log is not None:
            del interpreter.log[logged:]
        with suppress(RuntimeError):  # it is incomplete, which is no error of its own
            device.capture_end()
        device.reset()
        raise
    finally:
        hooks.drop_writes()
        interpreter.graph, interpreter.last = None, last
        after, hooks.standing = hooks.standing, before
        added = Standing(after.runs - before.runs, after.misses - before.misses, after.arrived)
        once = interpreter.counts.set_back(counts)
        offloaded.streams.forget(name)
    return Taken(graph, device, added, once), output


def _judge(offloaded: Offloaded, taken: Taken) -> None:
    """OffloadError for a graph that is none of ours, or that would miss where that is an error; a
    warning for one that reloads what the schedule did not bring."""
    misses = taken.added.misses
    if not any(_runs(taken.graph)):
        raise OffloadError(
            "the function ran no offloaded module, so that nothing of the schedule is in its "
            "graph: call the model in it, or use the device's own graphs"
        )
    if misses:
        text = (
            f"{taken.graph.name} reloads {counted(misses, 'module')} in each replay, since its "
            f"function runs modules in another order than the schedule's"
        )
        if offloaded.hooks.on_miss == RAISE:
            raise OffloadError(f"{text}; on_miss='reload' allows that")
        log.warning("%s", text)


def _load(offloaded: Offloaded, modules: Iterable[int]) -> None:
    """Load these modules into their slots, where they are not resident."""
    for module in modules:
        step = offloaded.hooks.interpreter.passes[0].steps[module]
        if not offloaded.hooks.interpreter.holds(step):
            offloaded.hooks.interpreter.issue(step.halves[RELOAD])


def _runs(graph: Graph) -> Iterator[Run]:
    return (one.operation for one in graph.body if isinstance(one.operation, Run))


def _bound(offloaded: Offloaded, half: str, operations: Operations, graph: DeviceGraph) -> Bound:
    """These operations as actions; what is of a graph, on the device's."""

    def action(operation: Operation) -> Action:
        match operation:
            case Capture():
                return graph.capture_begin
            case EndCapture():
                return graph.capture_end
            case Replay():
                return graph.replay
        return offloaded.hooks.interpreter.action(operation)

    return tuple((Issued(one, Boundary(half, 0)), action(one)) for one in operations)
