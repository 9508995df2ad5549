"""What a model costs on this machine: ``runtime.profile``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from runtime.device import streams_of
from runtime.hooks import RELOAD
from runtime.layout import Layout
from runtime.link import Lane, lane_to, link_of
from runtime.meter import Meter, Timed, covered, medians
from runtime.offloaded import Offloaded
from runtime.parts import device_name, modules_of, name_of, resident
from runtime.placement import laid_out, placed
from runtime.select import Layers, Selection, device_of, require_values, select
from schedule import policies
from schedule.costs import SECOND, Costs, Link, Module, Workload
from schedule.errors import OffloadError
from schedule.program import lower
from schedule.ring import Ring

PASSES = 7
"""So many are measured; the medians count."""
ESTIMATED = "decode (estimated)"

Inputs = Mapping[str, Any] | tuple[Any, ...] | Callable[[], object]
"""Of a pass: the model's named arguments, or its arguments; or a function that runs it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """costs: as a planner takes them. alone: by workload, the nanoseconds of each module's run with
    no copy under way; in the costs are those beside a copy."""

    costs: Costs
    alone: tuple[tuple[int, ...], ...]


def profile(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers = None,
    *,
    inputs: Mapping[str, Inputs] | None = None,
    weights: Mapping[str, float] | None = None,
    device: torch.device | str | None = None,
    **selectors: Any,
) -> Costs:
    """Measure what a model costs on a device, for ``runtime.offload(memory=..., costs=...)``.

    model, layers, device, and selectors (keep, parameters, ...): as for ``offload``.
    inputs:  by name of a workload, "decode" and "prefill" say, what one pass of it is: a dict of
             the model's named arguments, a tuple of its arguments, on the device; or a function
             without arguments that calls the model, once.
    weights: how much each workload is of all, by name; 1 if it is not said.

    The model need not fit the device: it runs offloaded, one module at a time on the device. Before
    each module runs, its weights are there and the device is idle; it is timed alone, and again
    beside a copy from page-locked memory that lasts longer, which is how it runs in an offloaded
    pass: these times are in the costs. On a CPU nothing is beside it: copies take its time.

    Without inputs nothing is run. Then there is one workload, "decode (estimated)", in which each
    module takes as long as the device needs to read its weights once, which is what bounds decoding
    one token; and what stays on the device takes no time.
    """
    return profiled(model, layers, inputs=inputs, weights=weights, device=device, **selectors).costs


def profiled(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers = None,
    *,
    inputs: Mapping[str, Inputs] | None = None,
    weights: Mapping[str, float] | None = None,
    device: torch.device | str | None = None,
    **selectors: Any,
) -> Profile:
    """Like ``profile``, with the times that are not in the costs."""
    selection = select(model, layers, **selectors)
    if not isinstance(weights, Mapping | None):
        raise OffloadError(
            f"weights is a {type(weights).__name__}; give a dict, a number by a workload's name"
        )
    named = dict(weights or {})
    if inputs is None:
        if named:
            raise OffloadError("weights go with inputs, whose workloads they weigh")
        costs = estimated(selection, device)
        return Profile(costs, (costs.workloads[0].compute,))
    _require_inputs(selection, inputs, named)
    require_values(selection)
    with _alone(selection, device) as offloaded, lane_to(offloaded.streams.device) as lane:
        link = link_of(lane)
        runs = {name: _pass(selection.root, given) for name, given in inputs.items()}
        with torch.no_grad():
            for run in runs.values():
                run()  # warms up, and shows in which order found layers run
            found = {
                name: _measured(offloaded, name, run, lane, link) for name, run in runs.items()
            }
        layouts, there = offloaded.arena.layouts, offloaded.streams.device
    workloads = [
        Workload(name, compute, between, named.get(name, 1.0))
        for name, (compute, between, _) in found.items()
    ]
    costs = _costs(selection, layouts, workloads, link, there)
    return Profile(costs, tuple(alone for _, _, alone in found.values()))


def estimated(selection: Selection, device: torch.device | str | None) -> Costs:
    """The costs of a model that is not run, as ``profile`` says."""
    layouts = laid_out(selection)
    with lane_to(where(selection, device)) as lane:
        link, reading = link_of(lane), lane.reading()
        there = lane.streams.device
    compute = tuple(layout.weights * SECOND // reading for layout in layouts)
    workload = Workload(ESTIMATED, compute, (0,) * (len(layouts) + 1))
    return _costs(selection, layouts, [workload], link, there)


def where(selection: Selection, device: torch.device | str | None) -> torch.device:
    """The device that an offload of these would have."""
    return streams_of(device_of(selection) if device is None else device).device


def _costs(
    selection: Selection,
    layouts: Iterable[Layout],
    workloads: Iterable[Workload],
    link: Link,
    device: torch.device,
) -> Costs:
    modules = modules_of(layouts)
    return Costs(
        modules,
        tuple(workloads),
        link,
        resident(selection),
        name_of(selection, modules),
        device_name(device),
        torch.__version__,
    )


def _alone(selection: Selection, device: torch.device | str | None) -> Offloaded:
    """Each module is copied into the only slot just before it runs, from memory that need not be
    locked."""
    schedule = policies.on_demand(Ring(len(selection.modules), 1))
    placement = placed(selection, schedule, device, limit=0)
    return Offloaded(placement, lower(schedule), RELOAD, True)


def _measured(
    offloaded: Offloaded, name: str, run: Callable[[], object], lane: Lane, link: Link
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Nanoseconds of each module's run, as it is in an offloaded pass; between them; and of its
    run alone."""
    alone = _passes(Meter(offloaded, None), run, name)
    times = medians([one.compute for one in alone])
    between = medians([one.between for one in alone])
    if not link.streams:
        return times, between, times
    # Twice as long, for a module that is slower beside it.
    beside = _passes(
        Meter(offloaded, lambda module: lane.load(2 * times[module] + 1, link)), run, name
    )
    return covered(beside), between, times


def _passes(meter: Meter, run: Callable[[], object], name: str) -> list[Timed]:
    with meter.hooked():
        return [meter.measure(run, name) for _ in range(PASSES)]


def _pass(model: nn.Module | None, given: Inputs) -> Callable[[], object]:
    if callable(given):
        return given
    assert model is not None, "a list of modules was refused"
    return partial(model, **given) if isinstance(given, Mapping) else partial(model, *given)


def _require_inputs(
    selection: Selection, inputs: Mapping[str, Inputs], weights: Mapping[str, float]
) -> None:
    if not isinstance(inputs, Mapping) or not inputs:
        raise OffloadError(
            "inputs must be a dict: by a workload's name, the model's arguments as a dict or a "
            "tuple, or a function that runs it; leave it out for an estimate"
        )
    for name, given in inputs.items():
        if not isinstance(given, Mapping | tuple) and not callable(given):
            raise OffloadError(
                f"inputs[{name!r}] is a {type(given).__name__}; give the model's arguments as a "
                f"dict or a tuple, or a function that runs it"
            )
        if selection.root is None and not callable(given):
            raise OffloadError(
                f"inputs[{name!r}] has arguments, but a list of modules can't be called; give a "
                f"function that runs the model"
            )
    for name in weights:
        if name not in inputs:
            raise OffloadError(f"weights has {name!r}, which is none of inputs: {[*inputs]}")
    workloads = (Workload(name, (0,), (0, 0), weights.get(name, 1.0)) for name in inputs)
    Costs((Module("any", (), 1),), tuple(workloads), Link(1))  # says what no costs can have
