"""What the commands say of a schedule's findings, as plain data for JSON."""

from __future__ import annotations

from typing import Any

from schedule.verifier import Findings, Lint, Violation


def verdict_of(findings: Findings) -> str:
    """VERIFIED or VIOLATED."""
    return "VERIFIED" if findings.safe else "VIOLATED"


def summary_of(findings: Findings) -> dict[str, Any]:
    """Name, sizes, verdict, copies and useless refills."""
    schedule = findings.schedule
    return {
        "policy": schedule.policy,
        "modules": schedule.ring.modules,
        "slots": schedule.ring.slots,
        "verdict": verdict_of(findings),
        "copies": schedule.copies // schedule.period,
        "useless_refills": len(findings.lints),
    }


def findings_json(findings: Findings) -> dict[str, Any]:
    """The summary, every violation with its trace, and every useless refill."""
    return summary_of(findings) | {
        "violations": [_violation_json(violation) for violation in findings.violations],
        "lints": [_lint_json(lint) for lint in findings.lints],
    }


def _violation_json(violation: Violation) -> dict[str, Any]:
    return {
        "property": violation.property,
        "slot": violation.slot,
        "needs": violation.needs,
        "has": violation.has,
        "sentence": violation.sentence,
        "brought": violation.brought,
        "replaced": violation.replaced,
        "run": violation.run,
        "trace": [moment._asdict() for moment in violation.trace],
    }


def _lint_json(lint: Lint) -> dict[str, Any]:
    return {"refill": lint.refill._asdict(), "sentence": lint.sentence}
