"""What a run gives to machines: JSON, JUnit, SARIF, SMT-LIB, and GitHub's annotations."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from dataclasses import replace
from pathlib import Path

import pytest
import z3

from proofs import __main__ as command
from proofs import export
from proofs.gates import gates
from proofs.mutants import MUTANTS
from proofs.prove import HERE, Result
from proofs.report import Verdict
from tests.proofs.results import FIRST_MUTANT, MANY, whole


def with_two_faults() -> list[Result]:
    """One obligation is not proved; one mutant survives."""
    results = whole()
    first = results[0]
    bad = replace(
        first.parts[2], verdict=Verdict.UNKNOWN, reason="it may fail: 100%, a\nb", formula=""
    )
    parts = (*first.parts[:2], bad, *first.parts[3:])
    results[0] = replace(first, verdict=Verdict.UNKNOWN, parts=parts)
    results[FIRST_MUTANT] = replace(
        results[FIRST_MUTANT], verdict=Verdict.MUTANT_SURVIVED, reason="it holds"
    )
    return results


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    results = with_two_faults()
    monkeypatch.setattr(command, "prove_all", lambda *_: iter(results))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    return results


def test_json_is_one_document_with_everything(
    faulty: list[Result], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["exit_code"]) == ("UNKNOWN", 3)
    assert found["summary"].startswith("UNKNOWN: 13 claims, 109 of 109 obligations, ")
    assert found["solver"] == f"z3 {z3.get_version_string()}"
    assert len(found["claims"]) == 13
    assert sum(len(claim["obligations"]) for claim in found["claims"]) == 109
    assert len(found["mutants"]) == MANY
    assert found["claims"][0]["obligations"][0] == {
        "name": "CopyBegins allowed",
        "statement": "statement",
        "verdict": "PROVED",
        "reason": "",
        "engine": "z3",
        "seeds": [0, 1, 2],
        "paths": 2,
        "resources": 30,
        "second_solver": "unsat",
    }
    assert found["claims"][0]["obligations"][2]["reason"] == "it may fail: 100%, a\nb"
    assert found["mutants"][0] == {
        "name": "no WAR guard",
        "verdict": "MUTANT_SURVIVED",
        "smallest": MUTANTS[0].smallest,
        "refuted_by": ["claim 0, CopyBegins allowed"],
        "reason": "it holds",
    }
    assert {gate["name"]: gate["verdict"] for gate in found["gates"]}["mutants"] == (
        "MUTANT_SURVIVED"
    )
    assert faulty


def test_junit_has_a_case_for_all_and_fails_two_and_the_gate(
    faulty: list[Result], tmp_path: Path
) -> None:
    command.main(["--junit", str(tmp_path / "found.xml")])
    root = xml.parse(tmp_path / "found.xml").getroot()
    cases = [case for suite in root for case in suite]
    assert len(cases) == 109 + 4 + MANY + 7 == int(root.get("tests", 0))
    assert [suite.get("name") for suite in root][-2:] == ["mutants", "gates"]
    failed = {case.get("name"): case[0] for case in cases if len(case)}
    assert set(failed) == {"CopyBegins objected", "no WAR guard", "mutants"}
    assert int(root.get("failures", 0)) == 3
    assert failed["CopyBegins objected"].get("type") == "UNKNOWN"
    assert failed["no WAR guard"].text == "MUTANT_SURVIVED: it holds"
    assert faulty


def test_sarif_shows_what_is_not_green_where_it_is(faulty: list[Result], tmp_path: Path) -> None:
    command.main(["--sarif", str(tmp_path / "found.sarif")])
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    found = {
        one["message"]["text"].partition(":")[0]: (
            one["ruleId"],
            one["locations"][0]["physicalLocation"],
        )
        for one in run["results"]
    }
    rule, place = found["claim 0 machine, CopyBegins objected"]
    assert (rule, place["artifactLocation"]["uri"]) == ("UNKNOWN", "proofs/sizes.py")
    assert place["region"] == {"startLine": 7}
    rule, place = found["mutants, no WAR guard"]
    assert (rule, place["artifactLocation"]["uri"]) == ("MUTANT_SURVIVED", "schedule/machine.py")
    line = (
        (HERE / "schedule" / "machine.py")
        .read_text()
        .splitlines()[place["region"]["startLine"] - 1]
    )
    assert MUTANTS[0].before in line
    assert len(found) == 3
    assert {one["id"] for one in run["tool"]["driver"]["rules"]} == {"UNKNOWN", "MUTANT_SURVIVED"}
    assert faulty


def test_a_green_run_has_no_results_for_a_scanner() -> None:
    results = whole()
    (run,) = export.sarif(results, gates(results))["runs"]
    assert run["results"] == run["tool"]["driver"]["rules"] == []
    assert list(export.github(results, gates(results))) == []


def test_annotations_come_in_actions_alone(
    faulty: list[Result], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main([])
    assert "::error" not in capsys.readouterr().out
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    command.main([])
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert found[0] == (
        "::error file=proofs/sizes.py,line=7,title=UNKNOWN claim 0 machine%2C CopyBegins objected"
        "::it may fail: 100%25, a%0Ab"
    )
    assert len(found) == 3
    command.main(["--json"])
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] == "UNKNOWN"
    assert said.err.splitlines() == found
    assert faulty


def test_formulas_are_files_that_a_solver_reads(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    folder.mkdir(parents=True)
    for name in ("claim4_07.smt2", "claim9_07.smt2.txt"):  # of a run before; somebody's own
        (folder / name).touch()
    assert command.main(["--only", "4", "--smtlib", str(folder)]) == 0
    (folder / "claim9_07.smt2.txt").unlink()
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["claim4_00.smt2", "claim4_01.smt2"]
    for file in files:
        solver = z3.Solver()
        solver.from_string(file.read_text())
        assert solver.check() == z3.unsat
        for size in ("N", "K"):
            assert f"(declare-fun {size} () Int)" in file.read_text()


@pytest.mark.parametrize("option", ["--junit", "--sarif", "--smtlib"])
def test_a_report_that_can_not_be_written_is_a_usage_error(
    option: str, faulty: list[Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert command.main([option, str(tmp_path / "file" / "in")]) == 2
    assert "can't be written: Not a directory" in capsys.readouterr().err
    assert faulty


def test_what_there_is_to_prove_is_listed_without_proving(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "prove_all", None)
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("claim ") for line in lines) == 13
    assert sum(line.startswith("    ") for line in lines) == 109
    assert sum(line.startswith("mutant ") for line in lines) == MANY


@pytest.mark.parametrize("number", ["13", "-1", "x"])
def test_a_claim_that_there_is_not_is_a_usage_error(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["--only", number])
    assert stopped.value.code == Verdict.USAGE.value
    said = capsys.readouterr().err
    assert ("invalid int" if number == "x" else "there is no claim") in said


def test_junit_takes_whatever_was_raised(tmp_path: Path) -> None:
    results = whole()
    text = "raised: \x1b[0m, \x00, r\u00e9mi, \ud800, \ufffe <&>"
    results[0] = replace(results[0], verdict=Verdict.UNKNOWN, parts=(), reason=text)
    (tmp_path / "it.xml").write_text(export.junit(results, gates(results)), encoding="ascii")
    (suite, *_) = xml.parse(tmp_path / "it.xml").getroot()
    assert suite[0][0].get("message") == (
        "raised: \\x1b[0m, \\x00, r\u00e9mi, \\ud800, \\ufffe <&>"
    )
