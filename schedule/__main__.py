"""``python -m schedule policies | check | show | diff | plan | audit | recheck``.

Exit codes: 0 safe, 1 violated, 2 bad input; of ``diff`` 0, whether or not the two differ; 141 if
nobody reads the output to its end.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from schedule import certificate
from schedule.audit import audit, compare
from schedule.difference import Compared, Rings, compared, compared_rings
from schedule.drawing import draw
from schedule.errors import CertificateError, PolicyError
from schedule.faults import groups
from schedule.files import STANDARD_OUTPUT, Files, write_files, write_text
from schedule.loading import load
from schedule.output import printed
from schedule.plancommand import add_plan
from schedule.policy import NAMED, Policy
from schedule.recheck import Refuted, recheck
from schedule.ring import Ring
from schedule.summary import findings_json, verdict_of
from schedule.timeline import show, show_violation
from schedule.trace import tables_json
from schedule.tracefile import read
from schedule.verifier import Findings, check, verify

SAFE, VIOLATED, BAD_INPUT = 0, 1, 2
MOST_RUNS, MOST_CELLS = 20_000, 1_000_000
"""More are not to be looked at."""
DIFF_TO = 12
"""To which size ``diff`` compares the rings, if none is asked for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        code: int = chosen.run(chosen)
        return code
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m schedule", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str, sizes: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run)
        sub.add_argument("--modules", type=int, required=sizes, help="N, how many modules")
        sub.add_argument("--slots", type=int, required=sizes, help="K, how many slots")
        sub.add_argument("--json", action="store_true", help="print JSON")
        return sub

    any_policy = "a named policy, or pkg.module:function"
    command("policies", run_policies, "list the named policies; with sizes, what each does", False)
    one = command("check", run_check, "is the policy's schedule safe at these sizes?")
    one.add_argument("--policy", required=True, help=any_policy)
    one.add_argument("--certificate", metavar="FILE", help="write what was verified there")
    one = command("show", run_show, "the schedule as lanes over boundaries")
    one.add_argument("--policy", required=True, help=any_policy)
    one.add_argument("--passes", type=int, default=1, help="how many passes (default 1)")
    one.add_argument("--svg", metavar="FILE", help="write a picture too; - is standard output")
    one.add_argument("--trace", metavar="FILE", help="write a Chrome trace for Perfetto too")
    text = "where two policies differ: at these sizes, or in every ring to a bound"
    one = command("diff", run_diff, text, False)
    one.add_argument("first", help=any_policy)
    one.add_argument("second", help=any_policy)
    one.add_argument(
        "--to",
        type=int,
        metavar="SIZE",
        help=f"without sizes: rings to SIZExSIZE (default {DIFF_TO})",
    )
    add_plan(commands)
    one = command("audit", run_audit, "does a real run's trace fit its schedule?", False)
    one.add_argument("file", help="what offloaded.trace() saved")
    one.add_argument("--policy", help=f"{any_policy}; a trace of another schedule is an error")
    one = command("recheck", run_recheck, "is a certificate true? checked without a solver", False)
    one.add_argument("file", help="what check --certificate, or verified.certificate(), wrote")
    return parser


def run_policies(chosen: argparse.Namespace) -> int:
    """List the policies, with verdict and copies a pass if sizes are given."""
    ring = _ring(chosen)
    rows = [_policy_row(policy, ring) for policy in NAMED.values()]
    if chosen.json:
        _print_json(rows)
        return SAFE
    for row in rows:
        extra = ""
        if ring is not None:
            why = "too long a period" if "refused" in row else "needs more slots"
            extra = f"{row.get('verdict', why):<18}"
            extra += f"{row['copies']:>4} copies a pass  " if "copies" in row else " " * 20
        print(f"{row['name']:<15}{extra}{row['origin']}")
    return SAFE


def _policy_row(policy: Policy, ring: Ring | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": policy.name,
        "origin": policy.origin,
        "least_slots": policy.least_slots,
        "refills": _form(policy),
    }
    if ring is not None and ring.slots >= policy.least_slots:
        try:
            findings = check(policy(ring))
        except PolicyError as error:
            row["refused"] = str(error)
            return row
        row["verdict"] = verdict_of(findings)
        row["copies"] = findings.schedule.copies // findings.schedule.period
        row["useless_refills"] = len(findings.lints)
    return row


def _form(policy: Policy) -> str:
    if policy.target is not None:
        return "its own targets"
    return "derived" if policy.refill is None else "its own refills"


def run_check(chosen: argparse.Namespace) -> int:
    """The verdict on every property."""
    findings = _findings(chosen.policy, chosen)
    found = groups(findings.schedule)
    if chosen.json:
        _print_json(findings_json(findings) | {"streams": found})
    else:
        ring = findings.schedule.ring
        print(
            f"{findings.schedule.policy}, {ring.modules} modules, {ring.slots} slots: "
            f"{verdict_of(findings)}"
        )
        print(show_violation(findings))
        for name, text in found.items():
            print(
                f"{name:<10} "
                + (f"VIOLATED  {text.removeprefix(name + ': ')}" if text else "holds")
            )
        if "joined" not in found:
            period = findings.schedule.period
            print(f"joined     no graph: it repeats after {period} passes, so one pass is none")
    safe = findings.safe and not any(found.values())
    if chosen.certificate and safe:
        write_text(chosen.certificate, verify(findings.schedule).certificate())
    elif chosen.certificate:
        print("no certificate is written: the schedule is not safe", file=sys.stderr)
    return SAFE if safe else VIOLATED


def run_recheck(chosen: argparse.Namespace) -> int:
    """Whether what a certificate says is true."""
    data = certificate.load(chosen.file)
    try:
        recheck(data)
        refuted = ""
    except Refuted as error:
        refuted = str(error)
    if not refuted:
        for name in ("modules", "slots"):
            asked = getattr(chosen, name)
            if asked not in (None, data[name]):
                raise CertificateError(f"{name}: {data[name]}, but {asked} is asked for")
    if chosen.json:
        _print_json({"true": not refuted, "refuted": refuted or None})
    elif refuted:
        print(f"REFUTED: not true is: {refuted}")
    else:
        print(
            f"{data['policy']}, {data['modules']} modules, {data['slots']} slots: TRUE\n"
            f"{', '.join(data['claims'])} hold, for ever after the preload"
        )
    return VIOLATED if refuted else SAFE


def run_show(chosen: argparse.Namespace) -> int:
    """The lanes, and what is violated; a picture and a trace as files."""
    if chosen.passes < 1:
        raise ValueError(f"--passes must be at least 1, got {chosen.passes}")
    if chosen.passes * chosen.modules > MOST_RUNS:
        raise ValueError(
            f"--passes {chosen.passes} of {chosen.modules} modules are more than {MOST_RUNS:,} "
            f"runs; show fewer"
        )
    if chosen.passes * chosen.modules * chosen.slots > MOST_CELLS:
        raise ValueError(
            f"--passes {chosen.passes} of {chosen.modules} modules over {chosen.slots} slots are "
            f"more than {MOST_CELLS:,} places in a picture; show fewer"
        )
    findings = _findings(chosen.policy, chosen)
    drawing = draw(findings, chosen.passes)
    files = Files(chosen.svg, chosen.trace, STANDARD_OUTPUT if chosen.json else None)
    for path in write_files(drawing, files):
        print(f"wrote {path}", file=sys.stderr)
    if chosen.json:
        _print_json(findings_json(findings) | {"schedule": tables_json(findings.schedule)})
    elif STANDARD_OUTPUT not in files:
        print("\n".join([show(drawing), *map(str, findings.violations)]))
    return SAFE if findings.safe else VIOLATED


def run_diff(chosen: argparse.Namespace) -> int:
    """Where two policies differ, in one ring or in all to a bound. Differing is no error."""
    first, second, ring = load(chosen.first), load(chosen.second), _ring(chosen)
    found: Compared | Rings
    if ring is None:
        found = compared_rings(first, second, DIFF_TO if chosen.to is None else chosen.to)
    elif chosen.to is not None:
        raise ValueError("--to is for many rings; leave it out, or --modules and --slots")
    else:
        found = compared(first(ring), second(ring))
    if chosen.json:
        _print_json(found.as_json())
    else:
        print(found)
    return SAFE


def run_audit(chosen: argparse.Namespace) -> int:
    """The first event of a trace that does not fit, and what was allowed there."""
    trace = read(chosen.file)
    policy = None if chosen.policy is None else load(chosen.policy)
    compare(trace.schedule, chosen.modules, chosen.slots, policy)
    audited = audit(trace)
    if chosen.json:
        _print_json(audited.as_json())
    else:
        print(audited)
    return SAFE if audited.fits else VIOLATED


def _ring(chosen: argparse.Namespace) -> Ring | None:
    """The sizes, where they may be left out."""
    if (chosen.modules is None) != (chosen.slots is None):
        raise ValueError("give both --modules and --slots, or neither")
    return None if chosen.modules is None else Ring(chosen.modules, chosen.slots)


def _findings(name: str, chosen: argparse.Namespace) -> Findings:
    return check(load(name)(Ring(chosen.modules, chosen.slots)))


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


if __name__ == "__main__":
    sys.exit(printed(main))
