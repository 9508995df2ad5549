"""Offload a model: its modules' weights pass through a few slots, by a verified schedule.

The hooks around each module interpret the program and decide nothing. The guard before a module
compares what its slot holds with what it needs; a module that is not resident, whatever order the
modules ran in, is loaded then and there, or is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from runtime.arena import Source
from runtime.choice import (
    AnyCertificate,
    AnyPolicy,
    choice,
    planned,
    require_ordered,
    require_safe,
    require_source,
)
from runtime.hooks import RAISE, RELOAD
from runtime.host import chunk_of, limit_of
from runtime.log import log
from runtime.offloaded import Offloaded
from runtime.placement import placed
from runtime.planning import AnyCosts, fitted, require_alone, streams_in
from runtime.select import Layers
from runtime.static import kinds_of
from schedule.errors import OffloadError
from schedule.program import lower


def offload(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers = None,
    *,
    slots: int | None = None,
    policy: AnyPolicy = None,
    certificate: AnyCertificate | None = None,
    group_size: int | None = None,
    num_in_group: int | None = None,
    keep: Layers = None,
    parameters: str | Iterable[str] | None = None,
    on_miss: str = RELOAD,
    device: torch.device | str | None = None,
    pin: bool | int | str = True,
    chunk: int | str | None = None,
    source: Source | None = None,
    static: bool = False,
    memory: int | str | None = None,
    costs: AnyCosts | None = None,
) -> Offloaded:
    """Move the layers' weights to host memory and run them through that many device slots.

    model:   the whole model, whose other tensors move to the device; or a list of modules, and
             then nothing else is touched.
    layers:  the modules to offload, in execution order: modules, and name patterns such as
             "model.layers.*", where * goes across dots too, and of modules within one another
             the outermost is meant. By default the model's blocks, in the order in which they run
             in the first complete pass.
    slots:   K >= 1, each as large as the largest module that uses it; 2 by default, or those of
             the Schedule that is given as policy.
    policy:  a name, ``pkg.module:function``, a Policy, a function (index, slots, modules) ->
             target or None, or a Schedule or Verified for exactly this ring. Default:
             ``double_buffer``, for one slot ``single_buffer``.
    certificate: instead of slots and policy: a file, or its data, that
             ``python -m schedule check --certificate`` wrote; it is checked anew.
    group_size, num_in_group: of every so many layers only the last so many, 1 by default, are
             offloaded, as vLLM counts; the others stay on the device.
    keep:    layers that stay on the device for good: modules or name patterns.
    parameters: name patterns, such as "experts": of each module only the parameters that have
             one among their names' segments are offloaded.
    on_miss: what to do when a module is not resident: "reload" it, or "raise" ModuleNotResident.
    device:  by default the accelerator that the model is on, else the current one, else the CPU.
    pin:     how much host memory may be page-locked: all, nothing, or a size, "16GiB", and then
             that of the modules refilled most comes first.
    chunk:   a size, "32MiB": refills of more than two chunks are copied chunk by chunk, so that
             small uploads of other streams need not wait for a whole one. One copy by default.
    source:  for tensors on the meta device: a function (full name, target) that writes the values
             into the target, once a tensor; ``runtime.load`` brings one for checkpoints.
    static:  for ``torch.compile(model, fullgraph=True)``: weights stay bound to their slots, and
             the hooks are operators of the graph. Then parameters() outside their module's run
             show what the slot holds; state_dict() shows the weights. A module must have one slot.
    memory:  instead of slots, policy and certificate: a size, "6GiB". The best schedule that is
             found for so many bytes of the model's weights on the device (what stays there, and
             slots; activations and caches are not counted) is run: ``offloaded.plan``. Modules and
             parts of them may stay on the device. The layers keep the order that they have, or that
             of the costs; with static=True each has one slot.
    costs:   for memory: what ``runtime.profile`` returned, or a file that
             ``python -m runtime profile`` wrote. Without them bytes and bandwidth are measured, and
             the modules' times estimated from these, as ``runtime.profile`` does without inputs.

    For inference: an output that requires grad is an error. Raises ScheduleViolation for a
    schedule that is not safe, CostsError for a budget that is too small, or for costs of another
    model, OffloadError and other ValueErrors for what can't be offloaded; nothing is changed then.
    Use the result as a context manager, or call ``close()``.
    """
    if on_miss not in (RELOAD, RAISE):
        raise OffloadError(f"on_miss must be 'reload' or 'raise', got {on_miss!r}")
    require_source(source)
    limit, longest = limit_of(pin), chunk_of(chunk)
    require_alone(memory, costs, slots=slots, policy=policy, certificate=certificate)
    chosen: dict[str, Any] = {
        "needs_values": source is None,
        "group_size": group_size,
        "num_in_group": num_in_group,
        "keep": keep,
        "parameters": parameters,
    }
    if memory is None:
        plan = None
        selection, schedule = planned(
            model, layers, slots=slots, policy=policy, certificate=certificate, **chosen
        )
    else:
        selection, plan = fitted(
            model, layers, memory, costs, device=device, captured=static, **chosen
        )
        schedule = plan.schedule
    require_safe(schedule)
    program = lower(schedule) if plan is None else lower(schedule, streams_in(plan))
    require_ordered(program, schedule.ring.modules)
    arena, hooks = kinds_of(static)
    placement = placed(selection, schedule, device, limit, source, arena)
    offloaded = Offloaded(placement, program, on_miss, True, longest, hooks, plan)
    if log.isEnabledFor(logging.INFO):
        log.info("%s", choice(offloaded, policy if certificate is None else schedule))
    return offloaded
