"""What ``check`` and ``machine.run`` say about a schedule, in the walk's own form."""

from __future__ import annotations

from schedule import Findings, Schedule, check, machine
from schedule.properties import OWNERSHIP
from tests.walk import Place, Verdict

MACHINE = ("ownership", "identity")
"""The properties that the machine decides in host order."""


def by_check(findings: Findings) -> dict[str, Place]:
    """By property: the refill that violates ownership; the run that violates another one."""
    found = {}
    for violation in findings.violations:
        at = violation.replaced if violation.property == OWNERSHIP else violation.run
        assert at is not None, violation
        found[violation.property] = Place(*violation.trace[at])
    return found


def lints(findings: Findings) -> frozenset[Place]:
    """The refills that the thrift lint names."""
    return frozenset(Place(*lint.refill) for lint in findings.lints)


def difference(schedule: Schedule, verdict: Verdict) -> list[str]:
    """Where ``check`` and the walk disagree: violations, then the thrift lint.

    A refill that repeats the one before it is useless itself, and then it is a matter of words
    whether the repeated one is read by the run; so with such refills the lint may leave those
    out, and without them it names exactly the same refills.
    """
    findings = check(schedule)
    said, seen = by_check(findings), verdict.violated
    wrong = [
        f"{name}: check says {said.get(name)}, the walk {seen.get(name)}"
        for name in sorted({*said, *seen})
        if said.get(name) != seen.get(name)
    ]
    surely = verdict.own | verdict.idle
    useless = surely | verdict.unread
    named = lints(findings)
    if not surely <= named <= useless or (not verdict.own and named != useless):
        wrong.append(f"thrift: check says {sorted(named)}, the walk {sorted(useless)}")
    if bool(named) != bool(useless):
        wrong.append(f"thrift: lint {sorted(named)}, but useless are {sorted(useless)}")
    return wrong


def machine_difference(schedule: Schedule, verdict: Verdict) -> list[str]:
    """Where three periods of the machine and the walk disagree. The machine must find nothing
    but ownership and identity: in host order nothing overlaps."""
    said = {name: Place(*moment) for name, moment in machine.run(schedule, 3).items()}
    seen = {name: place for name, place in verdict.violated.items() if name in MACHINE}
    return [f"the machine says {said}, the walk {seen}"] if said != seen else []
