"""Poison: a slot's bytes become 0xFF, NaN in every floating type, as soon as nobody may read them.

On a CPU host block and slot are one memory, and on a device old bytes are often the right ones by
luck. So what runs before its refill has landed, or reads its slot after its run, gets NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
import torch

from runtime.device import AcceleratorStreams, Action, Pieces, Streams
from runtime.interpreter import Bound, Interpreter, Step
from schedule.guard import Copied
from schedule.operations import COMPUTE, Copy
from schedule.table import AFTER

POISON = 0xFF


@dataclass
class Poisoned:
    """The modules after whose runs a slot was poisoned, and before how many copies one was."""

    released: list[int] = field(default_factory=list)
    copies: int = 0


@contextmanager
def poison() -> Iterator[Poisoned]:
    """Poison the slots of every model that is offloaded in this context.

    At the end of a run whose slot is then refilled with another module, on the compute stream:
    behind the run, before its event. And before each copy, on the copy's stream: what the slot
    held is needed no longer. What may run again without a copy stays, as with K >= N; so no
    module is resident that was poisoned, and copies and misses are what they are without.
    """
    seen, whole_bind = Poisoned(), Interpreter.bind
    whole_copy, whole_issue = Interpreter._copy, Interpreter.issue
    refilled: set[int] = set()  # ids: nothing is kept alive

    def bind(interpreter: Interpreter, *arguments: Any) -> None:
        whole_bind(interpreter, *arguments)
        for step in (step for one in interpreter.passes for step in one.steps):
            if _is_refilled(step):
                refilled.add(id(step.halves[AFTER]))

    def issue(interpreter: Interpreter, bound: Bound) -> None:
        for step in _whose(interpreter, bound) if id(bound) in refilled else ():
            _release(interpreter, step, seen)
        whole_issue(interpreter, bound)

    def copy(interpreter: Interpreter, stream: str, slot: int, module: int) -> Action:
        with patch.object(interpreter, "streams", _Poisoning(interpreter.streams, seen)):
            return whole_copy(interpreter, stream, slot, module)

    with (
        patch.object(Interpreter, "bind", bind),
        patch.object(Interpreter, "issue", issue),
        patch.object(Interpreter, "_copy", copy),
    ):
        yield seen


def _is_refilled(step: Step) -> bool:
    """Whether another module is copied into the slot as soon as the step's module ran."""
    copies = [issued.operation for issued, _ in step.halves[AFTER]]
    return any(
        isinstance(one, Copy) and one.slot == step.slot and one.module != step.module
        for one in copies
    )


def _whose(interpreter: Interpreter, bound: Bound) -> Iterator[Step]:
    """The step after which these are issued."""
    steps = (step for one in interpreter.passes for step in one.steps)
    return (step for step in steps if step.halves[AFTER] is bound and _is_refilled(step))


def _release(interpreter: Interpreter, step: Step, seen: Poisoned) -> None:
    """The poison before all else that follows the step's run."""
    interpreter.last[step.slot] = Copied()  # should an interrupt come before the refill
    with _on(interpreter.streams, COMPUTE):
        interpreter.arena.slots[step.slot].fill_(POISON)
    seen.released.append(step.module)


class _Poisoning:
    """Streams whose copies poison their targets first."""

    def __init__(self, streams: Streams, seen: Poisoned) -> None:
        self._streams, self._seen = streams, seen

    def copy(self, stream: str, pieces: Pieces) -> Action:
        whole = self._streams.copy(stream, pieces)

        def copy() -> None:
            with _on(self._streams, stream):
                for target, _ in pieces:
                    target.fill_(POISON)
            self._seen.copies += 1
            whole()

        return copy


def _on(streams: Streams, stream: str) -> AbstractContextManager[Any]:
    """The stream as the current one; on a CPU there is none."""
    if isinstance(streams, AcceleratorStreams):
        current: torch.Stream = streams._stream(stream)()
        return current
    return nullcontext()


@pytest.fixture(autouse=True)
def poisoned(request: pytest.FixtureRequest) -> Iterator[Poisoned]:
    """In every test of a folder whose conftest imports it; but for those marked ``unpoisoned``."""
    if request.node.get_closest_marker("unpoisoned") is not None:
        yield Poisoned()
        return
    with poison() as seen:
        yield seen
