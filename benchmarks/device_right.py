"""Is it right on this device? Bit for bit, by every policy, in any order, in graphs; and the rule
that was refuted is wrong just where the verifier says so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import nn

import runtime
from benchmarks.device_rows import Row, guarded
from benchmarks.device_sanitizer import sanitized
from benchmarks.device_sizes import Bench
from runtime.unverified import offload_without_proof
from schedule import Ring, check, policies
from schedule.properties import IDENTITY

RIGHT, REFUTED = "right", "modular"
RINGS = (Ring(3, 2), Ring(5, 2), Ring(7, 3))
SAFE = tuple(name for name in policies.NAMED if name != REFUTED)
GRAPHED = Ring(7, 3)
"""The ring of the random orders and of the replays."""
SHUFFLED = ("double_buffer", "balanced", "slot_local", "rotating", "on_demand")


class Cut(Exception):
    """Ends a pass before its end."""


class Linears(nn.Module):
    """Linear layers, run in any order; ``forward`` gives what each run gave, and raises Cut before
    the run of that number."""

    def __init__(self, ring: Ring, width: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(ring.modules)
            layers = (nn.Linear(width, width, bias=False) for _ in range(ring.modules))
            self.layers = nn.ModuleList(layers).requires_grad_(False)

    def forward(
        self, x: torch.Tensor, order: Sequence[int], cut: int | None = None
    ) -> torch.Tensor:
        found = []
        for number, index in enumerate(order):
            if number == cut:
                raise Cut
            x = torch.tanh(self.layers[index](x)) * 2
            found.append(x)
        return torch.stack(found)


def right(bench: Bench) -> Iterator[Row]:
    """A row each; failed is what is not as it must be."""
    for ring in RINGS:
        what = f"{REFUTED}, N={ring.modules}, K={ring.slots}"
        yield from guarded(RIGHT, what, partial(_refuted, bench, what, ring))
    for name in SAFE:
        yield from guarded(RIGHT, name, partial(_proved, bench, name))
    for what, part in {
        "random orders": _orders,
        "replays": _replays,
        "sanitizer": _sanitizer,
    }.items():
        yield from guarded(RIGHT, what, partial(part, bench))


def _row(what: str, holds: bool, note: str) -> Row:
    return Row(RIGHT, what, note=note, failed=not holds)


def _subject(bench: Bench, ring: Ring) -> tuple[Linears, Callable[..., torch.Tensor], torch.Tensor]:
    """A model on the host; one of the same weights on the device; an input for both."""
    model, plain = (Linears(ring, bench.sizes.width).eval() for _ in range(2))
    x = torch.linspace(-1, 1, 2 * bench.sizes.width).view(2, -1).to(bench.device)
    return model, plain.to(bench.device), x


def _refuted(bench: Bench, what: str, ring: Ring) -> Iterator[Row]:
    """The first run that goes wrong is that of the module that the verifier names."""
    schedule = policies.named(REFUTED)(ring)
    (named,) = (one.needs for one in check(schedule).violations if one.property == IDENTITY)
    model, plain, x = _subject(bench, ring)
    order = range(ring.modules)
    with offload_without_proof(
        model,
        list(model.layers),
        slots=ring.slots,
        policy=REFUTED,
        output_may_be_wrong=True,
        device=bench.device,
    ):
        wrong = _first_wrong(model(x, order), plain(x, order))
    found = "nothing is wrong" if wrong is None else f"module {wrong} is wrong first"
    yield _row(what, wrong == named, f"{found}; the verifier names module {named}")


def _first_wrong(given: torch.Tensor, expected: torch.Tensor) -> int | None:
    """The number of the first run whose output differs."""
    runs = enumerate(zip(given, expected, strict=True))
    return next((number for number, (one, other) in runs if not torch.equal(one, other)), None)


def _proved(bench: Bench, name: str) -> Iterator[Row]:
    """Two periods of each ring, bit for bit; nothing is missed, and something is copied."""
    passes = copies = misses = 0
    equal = True
    for ring in RINGS:
        model, plain, x = _subject(bench, ring)
        order = range(ring.modules)
        expected = plain(x, order)
        with runtime.offload(
            model, list(model.layers), slots=ring.slots, policy=name, device=bench.device
        ) as one:
            given = [model(x, order) for _ in range(2 * one.schedule.period)]
            report = one.report()
        equal &= all(torch.equal(each, expected) for each in given)
        passes, copies = passes + len(given), copies + report.copies
        misses += report.misses
    said = f"{_equal(equal)} in {passes} passes; {copies} copies, {misses} misses"
    yield _row(name, equal and copies > 0 and misses == 0, said)


def _orders(bench: Bench) -> Iterator[Row]:
    """Modules skipped, repeated, in any order: what is not there is reloaded."""
    chance = random.Random(0)
    modules, wrong, misses = GRAPHED.modules, 0, 0
    for name in SHUFFLED:
        model, plain, x = _subject(bench, GRAPHED)
        with runtime.offload(
            model, list(model.layers), slots=GRAPHED.slots, policy=name, device=bench.device
        ) as one:
            for _ in range(bench.sizes.orders // len(SHUFFLED)):
                order = chance.choices(range(modules), k=chance.randint(1, 2 * modules))
                wrong += not torch.equal(model(x, order), plain(x, order))
            misses += one.report().misses
    tried = bench.sizes.orders // len(SHUFFLED) * len(SHUFFLED)
    what = f"{tried} random orders"
    yield _row(what, not wrong and misses > 0, f"{wrong} wrong; {misses} modules were reloaded")


def _replays(bench: Bench) -> Iterator[Row]:
    """A graph's replays, each with another input and after an eager pass that was cut short."""
    model, plain, x = _subject(bench, GRAPHED)
    order, chance = range(GRAPHED.modules), random.Random(0)
    wrong = cut = 0
    with runtime.offload(
        model, list(model.layers), slots=GRAPHED.slots, device=bench.device
    ) as one:
        graph = one.capture(lambda: model(x, order))
        for number in range(bench.sizes.replays):
            x.add_(number / bench.sizes.replays)
            try:
                model(x, order, cut=chance.randrange(1, GRAPHED.modules))
            except Cut:
                cut += 1
            graph.output.zero_()
            graph.replay()
            wrong += not torch.equal(graph.output, plain(x, order))
        copies = one.report().copies
    what = f"{bench.sizes.replays} replays, passes cut short between"
    holds = not wrong and cut == bench.sizes.replays and copies > 0
    yield _row(what, holds, f"{wrong} wrong; {cut} passes cut short, {copies} copies")


def _sanitizer(bench: Bench) -> Iterator[Row]:
    what = "torch's CUDA sanitizer"
    if bench.device.type != "cuda":
        yield _row(what, True, f"not run: it knows no {bench.device.type}")
        return
    yield _row(what, *sanitized(bench.left))


def _equal(holds: bool) -> str:
    return "bit for bit" if holds else "WRONG"
