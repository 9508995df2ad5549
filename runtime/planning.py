"""From a number of bytes to a verified schedule: what ``offload(memory=...)`` runs."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any

import torch
from torch import nn

from runtime.log import log
from runtime.parts import modules_of, require_costs_of
from runtime.placement import laid_out
from runtime.profile import estimated, where
from runtime.select import Layers, Selection, keeping, reordered, require_values, select
from runtime.sizes import bytes_of
from schedule.costs import Costs
from schedule.costsfile import read
from schedule.errors import OffloadError
from schedule.operations import ONE_COPY_STREAM, Streams
from schedule.plan import Plan, plan

AnyCosts = Costs | str | PathLike[str]


def fitted(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers,
    memory: int | str,
    costs: AnyCosts | None,
    *,
    device: torch.device | str | None = None,
    captured: bool = False,
    needs_values: bool = True,
    **selectors: Any,
) -> tuple[Selection, Plan]:
    """What ``offload`` would move in so much memory, and its plan; nothing is changed. captured:
    for passes that are replays of a graph, where each module has one slot. The others as for
    ``planned``. CostsError for costs of another model, or a budget that is too small."""
    budget = bytes_of(memory, "memory")
    known = None if costs is None else costs_of(costs)
    selection = select(model, layers, **selectors)
    if needs_values:
        require_values(selection)
    there = where(selection, device)
    if known is None:
        log.info(
            "no costs are given: bytes and bandwidth are measured, and a module's run is taken to "
            "last as long as reading its weights; runtime.profile measures the model itself"
        )
        known = estimated(selection, there)
    else:
        selection = _in_order_of(known, selection)
        require_costs_of(known, selection, modules_of(laid_out(selection)), there)
    found = plan(known, budget, captured=captured)
    kept = (
        f"{module.name}.{part}"
        for module, parts in zip(known.modules, found.kept, strict=True)
        for part in parts
    )
    return keeping(selection, kept), found


def costs_of(costs: AnyCosts) -> Costs:
    """Costs, or those in a file. CostsError for a file that has none."""
    if isinstance(costs, Costs):
        return costs
    if not isinstance(costs, str | PathLike):
        raise OffloadError(
            f"costs is a {type(costs).__name__}; give what runtime.profile returned, or a file "
            f"that python -m runtime profile wrote"
        )
    return read(costs)


def _in_order_of(costs: Costs, selection: Selection) -> Selection:
    """Layers that were found are in the order in which they hang; costs know in which they run."""
    names = [module.name for module in costs.modules]
    if not selection.found or sorted(names) != sorted(selection.names):
        return selection
    return reordered(selection, [selection.names.index(name) for name in names])


def streams_in(plan: Plan) -> Streams:
    """The copy streams for which the plan is; one where the costs are of a device that has none,
    which does everything in order whatever the program says."""
    link = plan.costs.link
    return link.copy_streams if link.streams else ONE_COPY_STREAM


def require_alone(memory: int | str | None, costs: object, **others: object) -> None:
    """OffloadError for a budget beside what it decides, and for costs without one."""
    given = [name for name, value in others.items() if value is not None]
    if memory is not None and given:
        raise OffloadError(
            f"memory={memory!r} decides about {' and '.join(others)}; leave {given[0]} out, or "
            f"memory"
        )
    if memory is None and costs is not None:
        raise OffloadError("costs go with memory, for which they are planned; give both")
