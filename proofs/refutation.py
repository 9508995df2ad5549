"""What a refutation says to whoever wrote the policy: which call, whose weights, what instead.

Before it is said it is replayed: the machine, which knows nothing of the local check, must come to
the same violation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schedule import machine
from schedule.policy import Policy
from schedule.properties import IDENTITY, OWNERSHIP
from schedule.ring import EMPTY
from schedule.table import AFTER, LEAVE, PRELOAD, RUN, Moment
from schedule.verifier import Findings, Violation


@dataclass(frozen=True, slots=True)
class Refutation:
    """sentence: which call returned what, and whose weights that destroyed.
    instead:  the safe target of that call.      test: a test to paste, which fails until then.
    """

    sentence: str
    instead: str
    test: str

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.instead}\n\n{self.test}"


def replayed(findings: Findings) -> bool:
    """Whether the machine violates what the local check says, of the properties that both know."""
    said = {violation.property for violation in findings.violations} & {OWNERSHIP, IDENTITY}
    return set(machine.run(findings.schedule, 3)) == said


def explain(policy: Policy, findings: Findings, loaded: str | None) -> Refutation:
    """The refutation of a violated schedule, in the words of its policy. loaded: by which name
    ``schedule.loading.load`` finds the policy, if it is known."""
    schedule = findings.schedule
    # Ownership first: its refill is the one that did it. Elsewhere what was replaced was of no
    # more use, and the fault is that nothing came then.
    violation = min(findings.violations, key=lambda one: (one.property != OWNERSHIP, one.run))
    culprit = _culprit(policy, violation)
    run = violation.trace[violation.run]
    module = run.step % schedule.ring.modules
    read = f"module {violation.has}'s weights" if violation.has != EMPTY else "nothing"
    if culprit is not None:
        returned, call = culprit.module, _call(policy, culprit, findings)
        lost = f"that destroyed the weights of module {violation.needs} in slot {violation.slot}"
        sentence = f"{call} returned {returned}, and {lost}, which runs from it next"
        at = culprit
    else:
        at = _released(violation)
        call = _call(policy, at, findings)
        sentence = (
            f"{call} returned {_result(policy, at, findings)}, and no other call brought module "
            f"{module} into slot {run.slot} before its run, which {_reads(violation, read)}"
        )
    return Refutation(sentence, _instead(policy, at, findings), _test(findings, loaded))


def _reads(violation: Violation, read: str) -> str:
    if violation.has == violation.needs:
        return "finds its own weights by an earlier copy's luck alone"
    return f"reads {read}"


def _culprit(policy: Policy, violation: Violation) -> Moment | None:
    """The refill that did it, if it was a call's result: a preload is one of a rule for refills."""
    if violation.property != OWNERSHIP or violation.replaced is None:
        return None
    found = violation.trace[violation.replaced]
    return None if found.half == PRELOAD and policy.refill is None else found


def _released(violation: Violation) -> Moment:
    """The last run from the slot before the one that reads it: the first chance to refill it. If
    there was none, the preload."""
    before = [
        one
        for one in violation.trace[: violation.run]
        if one.half == RUN and one.slot == violation.slot
    ]
    return before[-1] if before else Moment(PRELOAD, 0, violation.slot, violation.needs)


def _call(policy: Policy, at: Moment, findings: Findings) -> str:
    """The call in question, as the policy's author would write it."""
    ring, name = findings.schedule.ring, policy.name.rpartition(":")[2]
    if policy.refill is not None:
        half = "after" if at.half == RUN else at.half
        step = at.step % len(findings.schedule.slot_of)
        return f"{name}.refill(Boundary({half!r}, {step}), slot={at.slot}, ring={ring})"
    index = at.step % ring.modules
    return f"{name}(index={index}, slots={ring.slots}, modules={ring.modules})"


def _result(policy: Policy, at: Moment, findings: Findings) -> Any:
    """What the call returned: the module of a refill at this boundary and, for a rule for refills,
    into this slot, or None."""
    schedule = findings.schedule
    after = schedule.after[at.step % len(schedule.slot_of)]
    refills = schedule.preload if at.half == PRELOAD else after
    wanted = [one.module for one in refills if policy.refill is None or one.slot == at.slot]
    return wanted[0] if wanted else None


def _instead(policy: Policy, at: Moment, findings: Findings) -> str:
    """The slot's next user from there on, which is always safe."""
    schedule = findings.schedule
    modules, step = schedule.ring.modules, at.step % len(schedule.slot_of)
    ran = at.half in (RUN, AFTER, LEAVE)
    slot = at.slot if policy.refill is not None else schedule.slot_of[step]
    released = ran and schedule.slot_of[step] == slot
    user = schedule.next_user(schedule.users(), slot, step + 1 if ran else step)
    if user == EMPTY:
        return f"safe there: None, since nothing runs from slot {slot}"
    if released and user == step % modules:
        return f"safe there: None, since no other module runs from slot {slot}"
    why = f", which module {step % modules} has just released" if released else ""
    return f"safe there: {user}, the next user of slot {slot}{why}"


def _test(findings: Findings, loaded: str | None) -> str:
    """With ``load``, which finds a policy of any form by its name."""
    ring, name = findings.schedule.ring, loaded or "your.module:your_policy"
    title = "".join(sign if f"_{sign}".isidentifier() else "_" for sign in name.rpartition(":")[2])
    return (
        f"from schedule import Ring, verify\nfrom schedule.loading import load\n\n\n"
        f"def test_{title}_with_{ring.modules}_modules_and_{ring.slots}_slots():\n"
        f'    verify(load("{name}")(Ring(modules={ring.modules}, slots={ring.slots})))'
    )
