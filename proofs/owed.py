"""What a policy owes: the obligations that make it safe for every N, and every K or one of them.

There are two ways to show it. *Ready*: after every step each slot holds what its next run reads, as
it does where a module released is replaced at once. *Brought*: a slot may be left as it is for some
steps, but each module is brought before it runs (``brought``). The second one is for rules that the
first can't prove, and for rules for refills.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from proofs.brought import Rule, brought_somewhere, of_target, refill_in_range
from proofs.follow import followed
from proofs.obligation import Obligation, System
from proofs.refills import next_user
from proofs.sizes import (
    At,
    closure,
    in_range,
    passes_in_range,
    preload,
    step,
    target_in_range,
)
from proofs.slotfile import with_slots
from proofs.wrapped import enough, own_period, steps_of
from schedule.policy import Policy
from schedule.ring import Ring


def ways(policy: Policy, slots: int | None = None) -> Iterator[list[Obligation]]:
    """The lists of obligations, each of which makes the policy safe for every N; K is free, or as
    given."""
    found = [_ready(policy, slots)] if policy.refill is None else []
    if policy.refill is not None or policy.target is not None:
        found.append(_brought(policy, slots))
    for obligations in found:
        yield [replace(one, body=with_slots(one.body, slots)) for one in obligations]


def witness(policy: Policy, slots: int | None) -> At:
    """Two and a half rounds of the slots; module i is the last of the first, and s its slot."""
    many = max(2, policy.least_slots) if slots is None else slots
    ring = Ring(max(2, 5 * many // 2), many)
    return {"N": ring.modules, "K": many, "i": many - 1, "s": policy.slot_of(many - 1, ring)}


def _ready(policy: Policy, slots: int | None) -> list[Obligation]:
    """Of a policy with derived refills or a rule for targets."""
    system, at = System(), witness(policy, slots)
    slot_of, where = followed(policy.slot_of), enough(policy)
    target = None if policy.target is None else followed(policy.target)
    first = {name: value for name, value in at.items() if name != "i"}
    found = [
        _slots(policy, at),
        Obligation("base", "the preload makes every slot ready", preload(system), first),
        Obligation("closure", "what is ready at a pass's end is at its start", closure(), first),
    ]
    if own_period(policy):
        passes = passes_in_range(followed(policy.passes), policy.least_slots)
        found.append(Obligation("period", "a period has at least one pass", passes, first))
    if target is not None:
        found.append(Obligation("range", "targets are modules", target_in_range(target, where), at))
    # Derived refills are right for any slot map, so the policy's own need not be followed again.
    maps = slot_of if target is not None else None
    text = "a step keeps every slot ready: ownership and progress"
    found.append(Obligation("step", text, step(system, maps, target, where), at))
    return found


def _brought(policy: Policy, slots: int | None) -> list[Obligation]:
    """Of a policy with a rule for targets or for refills."""
    at, least, slot_of = witness(policy, slots), policy.least_slots, followed(policy.slot_of)
    if policy.target is None:
        assert policy.refill is not None, "derived refills are proved to be ready"
        rule = Rule(slot_of, followed(policy.refill), least, False)
        text, in_ring = "refills are modules", refill_in_range(rule.refill, least)
    else:  # a target that is no module has no slot either: the rule would not show it
        target = followed(policy.target)
        rule = of_target(slot_of, target, least)
        text, in_ring = "targets are modules", target_in_range(target, enough(policy))
    of_step = {name: value for name, value in at.items() if name != "s"}
    return [
        _slots(policy, at),
        Obligation("range", text, in_ring, at),
        Obligation(
            "next user",
            "every refill at any boundary brings its slot's next user",
            next_user(System(), rule),
            at,
        ),
        Obligation(
            "brought",
            "before each run its module is brought, and no run reads the slot in between",
            brought_somewhere(rule),
            of_step,
        ),
    ]


def _slots(policy: Policy, at: At) -> Obligation:
    body = in_range(followed(policy.slot_of), policy.least_slots, steps_of(policy))
    return Obligation("slots", "every step's slot is one of the ring's", body, at)
