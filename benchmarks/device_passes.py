"""Passes of offloaded models beside what bounds them: compute with all weights kept, and copies at
the peak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

import runtime
from benchmarks.device_measure import Arm, Whole, passes, row_of
from benchmarks.device_memory import fitting, stack_of, whole_of
from benchmarks.device_models import Inputs, Shape, Stack, prompt, token
from benchmarks.device_rows import Row, guarded
from benchmarks.device_sizes import Bench
from benchmarks.schemes import policy

HOST_TIMES = 1.1
"""Host memory that an offload takes, to its weights, at most."""
DECODE, PREFILL, SMALL = "decode", "prefill", "small"
EAGER, CAPTURED, COMPILED = "eager", "captured", "compiled by layer"
GROUPED: dict[str, Any] = {"group_size": 8, "num_in_group": 1}
"""Of eight layers the last is offloaded: the case that all began with."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A pass that is measured in several ways. call: runs it and returns its output.
    note: what is said of it in all of them."""

    call: Callable[[], torch.Tensor]
    whole: Whole
    note: str = ""


def subject(bench: Bench, model: Stack, shape: Shape, inputs: Inputs, note: str) -> Subject:
    """The model's pass, all weights on the device measured first."""
    whole, said = whole_of(model, shape, inputs, bench)
    return Subject(partial(model, inputs), whole, _joined(note, said))


def decode(bench: Bench) -> Iterator[Row]:
    """One new token: bound by copies."""
    shape, asked = bench.sizes.decode
    count, note = fitting(shape, asked, HOST_TIMES)
    model = stack_of(shape, count, bench)
    inputs = token(shape, count, bench.sizes.context, bench.device)
    one = subject(bench, model, shape, inputs, note)
    for slots in bench.sizes.slots:
        what = f"{shape.name}, {count} layers, K={slots}"
        rows = partial(_eager, bench, DECODE, model, slots, {what: one})
        yield from guarded(DECODE, what, rows)


def prefill(bench: Bench) -> Iterator[Row]:
    """A whole prompt: near the balance of compute and copies."""
    shape, asked = bench.sizes.prefill
    count, note = fitting(shape, asked, HOST_TIMES)
    model = stack_of(shape, count, bench)
    given = {
        tokens: subject(bench, model, shape, prompt(shape, tokens, bench.device), note)
        for tokens in bench.sizes.prompts
    }
    for slots in bench.sizes.slots:
        what = f"{shape.name}, {count} layers, K={slots}"
        named = {f"{what}, {tokens} tokens": one for tokens, one in given.items()}
        yield from guarded(PREFILL, what, partial(_eager, bench, PREFILL, model, slots, named))


def _eager(
    bench: Bench, part: str, model: Stack, slots: int, subjects: dict[str, Subject]
) -> Iterator[Row]:
    """The model offloaded once; a row for each subject."""
    with runtime.offload(model, list(model.layers), slots=slots, device=bench.device) as offloaded:
        for what, one in subjects.items():
            rows = partial(measured, bench, part, what, offloaded, one, EAGER)
            yield from guarded(part, what, rows)


def small(bench: Bench) -> Iterator[Row]:
    """Layers so small that the host's work counts: eager, in a graph, compiled. Each way is
    compared with a pass that is issued likewise, all weights kept."""
    shape, asked = bench.sizes.small
    count, note = fitting(shape, asked, HOST_TIMES)
    model = stack_of(shape, count, bench)
    inputs = token(shape, count, bench.sizes.context, bench.device)
    one = subject(bench, model, shape, inputs, note)
    ways = {EAGER: lambda *_: one.whole.seconds, CAPTURED: _captured, COMPILED: _compiled}
    for how, kept in ways.items():
        what = f"{shape.name}, {how}"
        yield from guarded(SMALL, what, partial(_small, bench, what, model, one, how, kept))


def _small(
    bench: Bench,
    what: str,
    model: Stack,
    one: Subject,
    how: str,
    kept: Callable[[Bench, Stack, Subject], float],
) -> Iterator[Row]:
    """All layers offloaded, and one in a group. kept: seconds of a pass with all weights kept."""
    one = replace(one, whole=replace(one.whole, seconds=kept(bench, model, one)))
    for which, chosen in {"all layers": {}, "one layer in 8": GROUPED}.items():
        full = f"{what}, {which}"
        with runtime.offload(model, slots=2, device=bench.device, **chosen) as offloaded:
            rows = partial(measured, bench, SMALL, full, offloaded, one, how)
            yield from guarded(SMALL, full, rows)


def _captured(bench: Bench, model: Stack, one: Subject) -> float:
    with (
        runtime.offload(model, slots=len(model.layers), device=bench.device) as offloaded,
        issued(offloaded, one.call, CAPTURED) as call,
    ):
        return passes(call, bench).seconds


def _compiled(bench: Bench, model: Stack, one: Subject) -> float:
    """The layers stay compiled."""
    for layer in model.layers:
        layer.compile(backend="aot_eager" if bench.simulated else "inductor")
    return passes(one.call, bench).seconds


def measured(
    bench: Bench, part: str, what: str, offloaded: runtime.Offloaded, one: Subject, how: str
) -> Iterator[Row]:
    """The subject's row, offloaded and issued so."""
    with issued(offloaded, one.call, how) as call:
        yield row_of(bench, part, what, arm_of(offloaded, call, one.note), one.whole)


@contextmanager
def issued(
    offloaded: runtime.Offloaded, call: Callable[[], torch.Tensor], how: str
) -> Iterator[Callable[[], torch.Tensor]]:
    """What runs a pass and returns its output: the call itself, or what replays it once it is
    captured, and then the next replay overwrites the output."""
    if how != CAPTURED:
        yield call
        return
    graph = offloaded.capture(call)

    def replay() -> torch.Tensor:
        graph.replay()
        output: torch.Tensor = graph.output
        return output

    yield replay


def arm_of(one: runtime.Offloaded, call: Callable[[], torch.Tensor], note: str = "") -> Arm:
    """A pass of an offloaded model."""
    report = one.report()
    return Arm(
        call,
        lambda: one.report().bytes_copied,
        report.bytes_device,
        report.bytes_locked,
        _joined(policy(one), note),
    )


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
