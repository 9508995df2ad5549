"""Which schedule an offload executes: chosen by policy or certificate, and said in words."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any

from torch import nn

from runtime.plantext import sentence
from runtime.select import Layers, Selection, require_values, select
from runtime.sizes import counted, megabytes
from schedule import policies
from schedule.arithmetic import Target
from schedule.certificate import read as read_certificate
from schedule.errors import OffloadError, ProgramError, ScheduleViolation
from schedule.faults import explain
from schedule.loading import load
from schedule.order import order
from schedule.policy import NAMED, Policy, of_target
from schedule.program import Program
from schedule.ring import Ring
from schedule.sizes import whole
from schedule.table import Schedule
from schedule.verifier import Verified, check

if TYPE_CHECKING:
    from runtime.offloaded import Offloaded

AnyCertificate = str | PathLike[str] | dict[str, Any]
AnyPolicy = str | Policy | Target | Schedule | Verified | None


def planned(
    model: nn.Module | Iterable[nn.Module],
    layers: Layers = None,
    *,
    slots: int | None = None,
    policy: AnyPolicy = None,
    certificate: AnyCertificate | None = None,
    needs_values: bool = True,
    **selectors: Any,
) -> tuple[Selection, Schedule]:
    """Which modules ``offload`` would move, and by which schedule; nothing is changed, and the
    schedule not verified. selectors: as for ``select``.   needs_values: OffloadError for a tensor
    on the meta device."""
    selection = select(model, layers, **selectors)
    if needs_values:
        require_values(selection)
    if isinstance(policy, Verified):
        policy = policy.schedule
    if slots is None and isinstance(policy, Schedule):
        slots = policy.ring.slots
    modules, number = len(selection.modules), whole(slots)
    if number is not None:
        slots = number  # of numpy, say; what is no whole number is refused by the ring
    if certificate is not None:
        return selection, certified(certificate, modules, slots, policy)
    return selection, schedule_for(policy, Ring(modules, 2 if slots is None else slots))


def require_safe(schedule: Schedule) -> None:
    """ScheduleViolation, which names policies that are safe here, unless the schedule is."""
    found = check(schedule)
    if found.safe:
        return
    ring = schedule.ring
    raise ScheduleViolation(
        found.violations,
        f"policy {schedule.policy!r} is not safe for {counted(ring.modules, 'module')} over "
        f"{counted(ring.slots, 'slot')}",
        f"leave policy out, or choose one of {', '.join(_safe(ring))}",
    )


def _safe(ring: Ring) -> list[str]:
    """The named policies that are safe for the ring."""
    fit = [policy for policy in NAMED.values() if policy.least_slots <= ring.slots]
    return [policy.name for policy in fit if check(policy(ring)).safe]


def require_source(source: object) -> None:
    """OffloadError for what can't be called."""
    if source is not None and not callable(source):
        raise OffloadError(
            f"source is a {type(source).__name__}; give a function (full name, target) that writes "
            f"the values into the target"
        )


def require_ordered(program: Program, modules: int) -> None:
    """ProgramError unless the program's own fences order it, from an empty device on."""
    ordering = order(program.listing(2), program.streams)
    if not ordering.safe:
        raise ProgramError(explain(ordering, ordering.faults[0], modules))


def certified(
    certificate: AnyCertificate, modules: int, slots: int | None, policy: AnyPolicy
) -> Schedule:
    """The schedule of a certificate. OffloadError if it is for another ring, or not alone."""
    if policy is not None:
        raise OffloadError("give a policy or a certificate, which has its own schedule, not both")
    if not isinstance(certificate, str | PathLike | dict):
        raise OffloadError(
            f"certificate is a {type(certificate).__name__}; give a certificate's file, "
            f"or its data, a dict"
        )
    if isinstance(certificate, str) and certificate.lstrip().startswith("{"):
        raise OffloadError("certificate is a file's content; give its name, or json.loads(content)")
    schedule = read_certificate(certificate)
    ring = schedule.ring
    for name, asked, there in ("modules", modules, ring.modules), ("slots", slots, ring.slots):
        if asked is not None and asked != there:
            raise OffloadError(
                f"the certificate is for {there} {name}, but this offload has {asked}; "
                f"make one for it: python -m schedule check --certificate"
            )
    return schedule


def schedule_for(policy: AnyPolicy, ring: Ring) -> Schedule:
    """The schedule of any form of policy, for this ring."""
    if isinstance(policy, Verified):
        policy = policy.schedule
    if isinstance(policy, Schedule):
        there = policy.ring
        if there.modules != ring.modules:
            raise OffloadError(
                f"the schedule is for {there.modules} modules, but this offload has {ring.modules}"
                f"; make it for Ring({ring.modules}, {there.slots})"
            )
        if there.slots != ring.slots:
            raise OffloadError(
                f"the schedule is for {there.slots} slots, but this offload has {ring.slots}; "
                f"pass slots={there.slots}, or leave slots out"
            )
        return policy
    if policy is None:
        return policies.default(ring.slots)(ring)
    if isinstance(policy, str):
        return load(policy)(ring)
    made = policies.guarded_policy(policy) if isinstance(policy, Policy) else of_target(policy)
    return made(ring)


def choice(offloaded: Offloaded, policy: AnyPolicy) -> str:
    """What was chosen, and what one slot more would save, if anything."""
    if offloaded.plan is not None:
        return f"offloaded by a plan: {sentence(offloaded.plan)}"
    schedule, layouts = offloaded.schedule, offloaded.arena.layouts
    ring, largest = schedule.ring, max(layout.size for layout in layouts)
    text = (
        f"offloaded {counted(ring.modules, 'module')} of up to {megabytes(largest)} over "
        f"{counted(ring.slots, 'slot')}, "
        f"policy {schedule.policy}: {_copies(schedule):g} copies a pass"
    )
    if unsaved := offloaded.report().unsaved:
        return f"{text}; no device memory is saved: {unsaved}"
    try:
        more = check(schedule_for(policy, Ring(ring.modules, ring.slots + 1)))
    except ValueError:
        return text  # the policy is for this size alone
    saved = _copies(schedule) - _copies(more.schedule)
    if not more.safe or saved <= 0:
        return text
    return f"{text}; one slot more ({megabytes(largest)}) would save {saved:g} of them"


def _copies(schedule: Schedule) -> float:
    """Copies a pass, on average over the period."""
    return schedule.copies / schedule.period
