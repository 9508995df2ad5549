"""``python -m proofs``: all claims and mutants. ``python -m proofs policy pkg.module:function``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from proofs.compare import compare_all
from proofs.prove import Result, prove_all, total
from proofs.report import Verdict, row
from proofs.user import PolicyResult, prove_policy
from schedule.errors import PolicyError
from schedule.loading import load
from schedule.policy import NAMED
from schedule.timeline import show_violation


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is the verdict's."""
    parser = argparse.ArgumentParser(
        prog="python -m proofs",
        description="Prove Ringproof's claims for all sizes, or prove or refute a policy.",
        epilog="exit codes: " + ", ".join(f"{verdict.value} {verdict.name}" for verdict in Verdict),
    )
    commands = parser.add_subparsers(dest="command")
    policy = commands.add_parser("policy", help="prove or refute a policy for all sizes")
    policy.add_argument("name", help="pkg.module:function, or a named policy")
    engines = commands.add_parser("engines", help="compare the engines on every ring to a bound")
    engines.add_argument("--to", type=int, default=8, metavar="SIZE", help="rings to SIZExSIZE")
    chosen = parser.parse_args(arguments)
    if chosen.command == "policy":
        return one_policy(chosen.name)
    if chosen.command == "engines":
        if chosen.to < 1:
            parser.error("a ring has at least 1 module and 1 slot")
        return every_ring(chosen.to)
    return everything()


def everything() -> int:
    """All claims and mutants, printed as they are decided."""
    results = []
    for result in prove_all(os.cpu_count() or 1):
        print(_text(result), flush=True)
        results.append(result)
    verdict, line = total(results)
    print("\n".join(by_policy(results)))
    print(line)
    return verdict.value


def every_ring(bound: int) -> int:
    """Every program of every ring to the bound, by all engines: ring by ring, as it is decided."""
    programs = wholly = 0
    for compared in compare_all(bound, os.cpu_count() or 1):
        programs, wholly = programs + compared.programs, wholly + compared.wholly
        if compared.found:
            print(f"{Verdict.DISAGREE.name}: {compared}")
            return Verdict.DISAGREE.value
        print(compared, flush=True)
    verdict = Verdict.HOLDS_TO_BOUND
    text = f"the engines agree on {programs:,} programs of all rings to {bound}x{bound}"
    print(f"{verdict.name}: {text}; every interleaving of {wholly:,} of them was visited")
    return Verdict.PROVED.value


def by_policy(results: Sequence[Result]) -> list[str]:
    """What the claims that are about every named policy's program say of each."""
    verdicts = {result.name.partition(" ")[0]: result.verdict for result in results}
    about = {"ordering": "5", "joined": "9", "closure": "6"}
    found = {name: verdicts.get(number, Verdict.UNKNOWN).name for name, number in about.items()}
    text = ", ".join(f"{name} {verdict}" for name, verdict in found.items())
    return [f"{'':<15} {name}: {text}" for name in NAMED]


def _text(result: Result) -> str:
    reason = f"\n{'':<15} {result.reason}" if result.reason else ""
    if result.engine:
        name = f"claim {result.name}"
        return (
            row(result.verdict, name, result.statement, result.engine, result.bound, result.size)
            + reason
        )
    refuted = result.verdict is Verdict.PROVED
    word = "REFUTED" if refuted else result.verdict.name
    return f"{word:<15} mutant '{result.name}' {result.statement}; smallest: {result.size}{reason}"


def one_policy(name: str) -> int:
    """Prove or refute one policy."""
    try:
        policy = load(name)
    except PolicyError as error:
        print(f"error: {error}", file=sys.stderr)
        return Verdict.USAGE.value
    result = prove_policy(policy)
    if result.verdict is Verdict.USAGE:
        print(f"error: {result.reason}", file=sys.stderr)
    else:
        print(policy_text(result))
    return result.verdict.value


def policy_text(result: PolicyResult) -> str:
    """The result in words; a violated one with its smallest ring and trace."""
    if result.verdict is Verdict.PROVED:
        size = f"{result.obligations} obligations on {result.paths} paths"
        text = "every schedule of it is safe"
        return row(result.verdict, result.policy, text, result.engine, result.bound, size)
    if result.smallest is None:
        return f"{result.verdict.name:<15} {result.policy}: {result.reason}"
    ring = result.smallest.schedule.ring
    head = f"{result.verdict.name:<15} {result.policy}: smallest N={ring.modules}, K={ring.slots}"
    return f"{head} ({result.engine}, {result.bound})\n{show_violation(result.smallest)}"


if __name__ == "__main__":
    sys.exit(main())
