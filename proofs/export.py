"""A run's results for machines: JSON, JUnit's XML, SARIF 2.1.0, and GitHub's annotations.

JUnit: one suite a claim, one for the mutants, one for the gates; a test case an obligation. SARIF
and the annotations have what is not green alone, each at the file and line that it is about.
"""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proofs.crosscheck import second_solver
from proofs.gates import Gate
from proofs.mutants import MUTANTS
from proofs.needs import SOLVER
from proofs.obligation import SEEDS
from proofs.prove import HERE, Part, Result
from proofs.report import Verdict, word

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
ABOUT = "proofs/claims.py"
"""The file that a claim as a whole, or a gate, is about."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was decided, wherever it is listed. group: the claim, "mutants" or "gates"."""

    group: str
    name: str
    verdict: Verdict | None
    text: str
    file: str
    line: int

    @property
    def green(self) -> bool:
        return self.verdict in (None, Verdict.PROVED, Verdict.HOLDS_TO_BOUND)


def entries(results: Sequence[Result], gates: Sequence[Gate]) -> Iterator[Entry]:
    """Everything that was decided: obligations, claims to a bound, mutants, gates."""
    for result in results:
        claim = f"claim {result.name}"
        if not result.engine:
            why = result.reason or result.statement
            yield Entry("mutants", result.name, result.verdict, why, *_of_mutant(result.name))
        elif not result.parts:
            yield Entry(claim, "enumeration", result.verdict, result.reason, ABOUT, 1)
        for part in result.parts:
            yield Entry(claim, part.name, part.verdict, part.reason or part.statement, *part.where)
    for gate in gates:
        yield Entry("gates", gate.name, gate.verdict, gate.text, ABOUT, 1)


def _of_mutant(name: str) -> tuple[str, int]:
    """The file that a mutant changes, and the line, or the first if the text is gone."""
    mutant = next(one for one in MUTANTS if one.name == name)
    module = mutant.module if "." in mutant.module else f"schedule.{mutant.module}"
    file = f"{module.replace('.', '/')}.py"
    before, found, _ = (HERE / file).read_text(encoding="ascii").partition(mutant.before)
    return file, before.count("\n") + 1 if found else 1


def as_json(
    results: Sequence[Result], gates: Sequence[Gate], verdict: Verdict, line: str
) -> dict[str, Any]:
    """The whole run. Resources are Z3's; they are the same on every machine."""
    return {
        "verdict": verdict.name,
        "exit_code": verdict.value,
        "summary": line,
        "solver": f"z3 {SOLVER}",
        "second_solver": second_solver(),
        "gates": [asdict(gate) | {"verdict": word(gate.verdict)} for gate in gates],
        "claims": [_claim_json(result) for result in results if result.engine],
        "mutants": [
            {
                "name": result.name,
                "verdict": "REFUTED" if result.verdict is Verdict.PROVED else result.verdict.name,
                "smallest": result.size,
                "refuted_by": [f"claim {number}, {name}" for number, name in result.killed]
                or [result.statement.removeprefix("refuted by ")],
                "reason": result.reason,
            }
            for result in results
            if not result.engine
        ],
    }


def _claim_json(result: Result) -> dict[str, Any]:
    number, _, title = result.name.partition(" ")
    return {
        "number": int(number),
        "title": title,
        "statement": result.statement,
        "verdict": result.verdict.name,
        "engine": result.engine,
        "bound": result.bound,
        "reason": result.reason,
        "obligations": [_part_json(part) for part in result.parts],
    }


def _part_json(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "statement": part.statement,
        "verdict": part.verdict.name,
        "reason": part.reason,
        "engine": "z3",
        "seeds": list(SEEDS),
        "paths": part.paths,
        "resources": part.resources,
        "second_solver": part.second,
    }


def junit(results: Sequence[Result], gates: Sequence[Gate]) -> str:
    """A report for whatever reads JUnit's."""
    root, suites = xml.Element("testsuites", name="proofs"), dict[str, xml.Element]()
    for entry in entries(results, gates):
        if entry.group not in suites:
            suites[entry.group] = xml.SubElement(root, "testsuite", name=entry.group)
        where = {"file": entry.file, "line": str(entry.line)}
        text = _printable(entry.text)
        where |= {"classname": entry.group, "name": entry.name}
        case = xml.SubElement(suites[entry.group], "testcase", where)
        if not entry.green:
            failure = xml.SubElement(case, "failure", type=word(entry.verdict), message=text)
            failure.text = f"{word(entry.verdict)}: {text}"
    for suite in (*suites.values(), root):
        suite.set("tests", str(len(list(suite.iter("testcase")))))
        suite.set("failures", str(len(list(suite.iter("failure")))))
    xml.indent(root)
    return f"{xml.tostring(root, encoding='us-ascii').decode('ascii')}\n"


def _printable(text: str) -> str:
    """With what XML does not allow written out: what was raised may have any text."""
    return "".join(
        sign
        if sign.isprintable() or sign == "\n"
        else sign.encode("unicode_escape").decode("ascii")
        for sign in text
    )


def sarif(results: Sequence[Result], gates: Sequence[Gate]) -> dict[str, Any]:
    """What is not green, for a code scanner's page."""
    bad = [entry for entry in entries(results, gates) if not entry.green]
    rules = sorted({word(entry.verdict) for entry in bad})
    return {
        "$schema": SARIF,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {"name": "ringproof", "rules": [{"id": rule} for rule in rules]}
                },
                "results": [
                    {
                        "ruleId": word(entry.verdict),
                        "level": "error",
                        "message": {"text": f"{entry.group}, {entry.name}: {entry.text}"},
                        "locations": [
                            {
                                "physicalLocation": {
                                    "artifactLocation": {"uri": entry.file or ABOUT},
                                    "region": {"startLine": entry.line},
                                }
                            }
                        ],
                    }
                    for entry in bad
                ],
            }
        ],
    }


def github(results: Sequence[Result], gates: Sequence[Gate]) -> Iterator[str]:
    """GitHub's commands that show what is not green at its line."""
    for entry in entries(results, gates):
        if not entry.green:
            title = _escaped(f"{word(entry.verdict)} {entry.group}, {entry.name}", ":,")
            where = f"file={_escaped(entry.file or ABOUT, ':,')},line={entry.line},title={title}"
            yield f"::error {where}::{_escaped(entry.text)}"


def _escaped(text: str, more: str = "") -> str:
    """As GitHub reads it: the percent sign first, then what would end the field."""
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
