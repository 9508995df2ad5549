"""The door for experiments: offload by a schedule that was refuted.

Only demos and tests need it, to show what goes wrong. It is no part of the package's face, and
says what it does in the log and in the report.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from runtime.choice import AnyPolicy, planned
from runtime.hooks import OFF, RELOAD
from runtime.log import log
from runtime.offloaded import Offloaded
from runtime.placement import placed
from runtime.select import Layers
from runtime.static import kinds_of
from schedule.errors import OffloadError
from schedule.program import lower
from schedule.verifier import check


def offload_without_proof(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers = None,
    *,
    slots: int,
    policy: AnyPolicy,
    output_may_be_wrong: bool,
    group_size: int | None = None,
    num_in_group: int | None = None,
    keep: Layers = None,
    parameters: str | Iterable[str] | None = None,
    guard: bool = False,
    device: torch.device | str | None = None,
    static: bool = False,
) -> Offloaded:
    """Like ``offload``, for any schedule, safe or not, and without the guard.

    output_may_be_wrong must be True, in words of the caller's own. With ``guard=True`` misses
    are reloaded, as in ``offload``: slow, but right.
    """
    if output_may_be_wrong is not True:
        raise OffloadError("say output_may_be_wrong=True, or use runtime.offload")
    selection, schedule = planned(
        model,
        layers,
        slots=slots,
        policy=policy,
        group_size=group_size,
        num_in_group=num_in_group,
        keep=keep,
        parameters=parameters,
    )
    safe = check(schedule).safe
    log.warning(
        "offloading by policy %s, %s, guard %s: the output may be wrong",
        schedule.policy,
        "which is safe" if safe else "which is VIOLATED",
        "on" if guard else "OFF",
    )
    mode = RELOAD if guard else OFF
    arena, hooks = kinds_of(static)
    placement = placed(selection, schedule, device, arena=arena)
    return Offloaded(placement, lower(schedule), mode, safe, hooks=hooks)
