"""``python -m proofs``: all claims, mutants, gates. ``python -m proofs policy NAME``: one rule."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from proofs import export
from proofs.claims import claims
from proofs.compare import compare_all
from proofs.gates import Gate, gates, total
from proofs.mutants import MUTANTS
from proofs.obligation import System
from proofs.prove import Result, chosen, prove_all
from proofs.report import Verdict, row, word
from proofs.user import prove_policy
from schedule.errors import PolicyError
from schedule.loading import load
from schedule.output import printed
from schedule.policy import NAMED


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is the verdict's."""
    asked = parser()
    options = asked.parse_args(arguments)
    reports = [name for name in ("json", "junit", "sarif", "smtlib") if getattr(options, name)]
    if reports and (options.list or options.command):
        asked.error(f"--{reports[0]} goes with the proof of the claims alone")
    if options.only and (options.list or options.command):
        asked.error("--only goes with the proof of the claims alone")
    if options.command == "policy":
        return one_policy(options.name)
    if options.command == "engines":
        if options.to < 1:
            asked.error("a ring has at least 1 module and 1 slot")
        return every_ring(options.to)
    known = [claim.number for claim in claims(System())]
    unknown = [number for number in options.only if number not in known]
    if unknown:
        asked.error(f"there is no claim {unknown[0]}; claims are {known[0]} .. {known[-1]}")
    return listed() if options.list else everything(options)


def parser() -> argparse.ArgumentParser:
    asked = argparse.ArgumentParser(
        prog="python -m proofs",
        description="Prove Ringproof's claims for all sizes, or prove or refute a policy.",
        epilog="exit codes: " + ", ".join(f"{verdict.value} {verdict.name}" for verdict in Verdict),
    )
    asked.add_argument("--list", action="store_true", help="what there is to prove, nothing else")
    asked.add_argument(
        "--only", type=int, action="append", default=[], metavar="CLAIM", help="again for more"
    )
    asked.add_argument("--json", action="store_true", help="one JSON document, at the end")
    asked.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report too")
    asked.add_argument("--sarif", type=Path, metavar="FILE", help="write what is not green too")
    asked.add_argument(
        "--smtlib", type=Path, metavar="FOLDER", help="write what was shown to be unsatisfiable too"
    )
    commands = asked.add_subparsers(dest="command")
    policy = commands.add_parser("policy", help="prove or refute a policy for all sizes")
    policy.add_argument("name", help="pkg.module:function, or a named policy")
    engines = commands.add_parser("engines", help="compare the engines on every ring to a bound")
    engines.add_argument("--to", type=int, default=8, metavar="SIZE", help="rings to SIZExSIZE")
    return asked


def listed() -> int:
    """The claims with their obligations, and the mutants."""
    for claim in claims(System()):
        print(f"claim {claim.number} {claim.title}: {claim.statement} ({claim.bound})")
        for obligation in claim.obligations:
            print(f"    {obligation.name}: {obligation.statement}")
    for mutant in MUTANTS:
        print(f"mutant '{mutant.name}' of {mutant.module}: {mutant.smallest}")
    return 0


def everything(options: argparse.Namespace) -> int:
    """The claims and mutants, printed as they are decided; then the gates."""
    results: list[Result] = []
    many = len(chosen(options.only))
    for result in prove_all(os.cpu_count() or 1, options.only):
        results.append(result)
        if not options.json:
            print(_text(result), flush=True)
        if sys.stderr.isatty():
            print(f"{len(results)} of {many} decided", end="\r", file=sys.stderr, flush=True)
    passed = gates(results, options.only)
    verdict, line = total(results, options.only)
    try:
        write(options, results, passed)
    except OSError as error:
        print(f"error: {error.filename} can't be written: {error.strerror}", file=sys.stderr)
        return Verdict.USAGE.value
    if options.json:
        print(json.dumps(export.as_json(results, passed, verdict, line), indent=2))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for said in export.github(results, passed):
            print(said, file=sys.stderr if options.json else sys.stdout)
    if not options.json:
        lines = [] if options.only else by_policy(results)
        lines += [f"{word(gate.verdict):<15} gate {gate.name}: {gate.text}" for gate in passed]
        print("\n".join([*lines, line]))
    return verdict.value


def write(options: argparse.Namespace, results: list[Result], passed: tuple[Gate, ...]) -> None:
    """The reports that were asked for."""
    if options.junit:
        options.junit.write_text(export.junit(results, passed), encoding="ascii")
    if options.sarif:
        text = json.dumps(export.sarif(results, passed), indent=2)
        options.sarif.write_text(f"{text}\n", encoding="ascii")
    if options.smtlib:
        options.smtlib.mkdir(parents=True, exist_ok=True)
        for old in options.smtlib.glob("claim*_[0-9][0-9].smt2"):
            old.unlink()  # of a run before: its formula may be no longer one of ours
        for result in results:
            shown = [(at, part) for at, part in enumerate(result.parts) if part.formula]
            for at, part in shown:
                name = f"claim{result.name.partition(' ')[0]}_{at:02}.smt2"
                head = f"; {result.name}, {part.name}: {part.statement}\n"
                (options.smtlib / name).write_text(head + part.formula, encoding="ascii")


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
    result = prove_policy(policy, name)
    if result.verdict is Verdict.USAGE:
        print(f"error: {result.reason}", file=sys.stderr)
    else:
        print(result)
    return result.verdict.value


if __name__ == "__main__":
    sys.exit(printed(main))
