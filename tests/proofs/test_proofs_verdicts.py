"""The verdict of a whole run: nothing missing, nothing unknown, nothing better than its worst."""

from __future__ import annotations

from dataclasses import replace

import pytest

import proofs.__main__ as command
from proofs.gates import total
from proofs.prove import Result
from proofs.report import WORST_FIRST, Verdict, worst
from schedule.policy import NAMED
from tests.proofs.results import BOUNDED, FIRST_MUTANT, MANY, claim, whole


def test_a_whole_run_is_proved() -> None:
    verdict, line = total(whole())
    assert verdict is Verdict.PROVED
    assert verdict.value == 0
    assert line == f"PROVED: 13 claims, 109 of 109 obligations, {MANY} of {MANY} mutants refuted"


@pytest.mark.parametrize("at", range(7))
def test_a_missing_claim_is_unknown(at: int) -> None:
    verdict, line = total([result for n, result in enumerate(whole()) if n != at])
    assert verdict is Verdict.UNKNOWN
    assert verdict.value == 3
    assert line.startswith("UNKNOWN: 12 claims, ")
    assert "109 of 109" not in line


@pytest.mark.parametrize("name", BOUNDED)
def test_a_missing_claim_to_a_bound_is_unknown(name: str) -> None:
    verdict, _ = total([result for result in whole() if result.name != name])
    assert verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("change", [-1, 1])
def test_another_number_of_obligations_is_unknown(change: int) -> None:
    results = whole()
    names = [part.name for part in results[1].parts]
    results[1] = claim("1 soundness", [*names, "another"] if change > 0 else names[:-1])
    verdict, line = total(results)
    assert verdict is Verdict.UNKNOWN
    assert f"{109 + change} of 109 obligations" in line


@pytest.mark.parametrize("at", [FIRST_MUTANT, 20, -1])
def test_a_missing_mutant_is_unknown(at: int) -> None:
    results = whole()
    del results[at]
    verdict, line = total(results)
    assert verdict is Verdict.UNKNOWN
    assert line.endswith(f"{MANY - 1} of {MANY} mutants refuted")


def test_no_results_are_unknown() -> None:
    verdict, line = total([])
    assert verdict is Verdict.UNKNOWN
    assert line == f"UNKNOWN: 0 claims, 0 of 109 obligations, 0 of {MANY} mutants refuted"


NOT_GREEN = [verdict for verdict in Verdict if verdict.name not in ("PROVED", "HOLDS_TO_BOUND")]


@pytest.mark.parametrize("verdict", NOT_GREEN)
@pytest.mark.parametrize("at", [0, 6, 7, 9, FIRST_MUTANT, -1])
def test_one_bad_result_is_the_verdict(at: int, verdict: Verdict) -> None:
    results = whole()
    results[at] = replace(results[at], verdict=verdict)
    found, line = total(results)
    assert found is verdict
    refuted = MANY - (at not in range(FIRST_MUTANT))
    assert line == (
        f"{verdict.name}: 13 claims, 109 of 109 obligations, {refuted} of {MANY} mutants refuted"
    )


def test_a_stale_mutant_is_unknown() -> None:
    results = whole()
    results[-1] = Result("uneven blocks", "", Verdict.UNKNOWN, "", "", "", "stale: text gone")
    assert total(results)[0] is Verdict.UNKNOWN


# ---- what is worse than what


def test_the_exit_codes() -> None:
    assert {verdict.name: verdict.value for verdict in Verdict} == {
        "PROVED": 0,
        "VIOLATED": 1,
        "USAGE": 2,
        "UNKNOWN": 3,
        "VACUOUS": 4,
        "MUTANT_SURVIVED": 5,
        "DISAGREE": 6,
        "HOLDS_TO_BOUND": 7,
    }


def test_which_verdict_is_worse() -> None:
    names = "USAGE VIOLATED DISAGREE UNKNOWN VACUOUS MUTANT_SURVIVED HOLDS_TO_BOUND PROVED"
    assert [verdict.name for verdict in WORST_FIRST] == names.split()


@pytest.mark.parametrize("at", range(len(WORST_FIRST)))
def test_the_worst_of_some_is_the_first_in_that_order(at: int) -> None:
    assert worst(reversed(WORST_FIRST[at:])) is WORST_FIRST[at]
    assert worst([WORST_FIRST[at]] * 3) is WORST_FIRST[at]


def test_nothing_at_all_proves_nothing() -> None:
    assert worst([]) is Verdict.UNKNOWN


# ---- the command says so


@pytest.mark.parametrize("verdict", Verdict)
def test_the_exit_code_is_that_of_the_worst_claim(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = whole()
    results[0] = replace(results[0], verdict=verdict, reason="because" if verdict.value else "")
    monkeypatch.setattr(command, "prove_all", lambda *_: iter(results))
    green = verdict in (Verdict.PROVED, Verdict.HOLDS_TO_BOUND)
    assert command.main([]) == (0 if green else verdict.value)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{verdict.name:<15} claim 0 machine: statement"
    assert lines[1].strip() == "z3, all N and K; 9"
    assert (lines[2].strip() == "because") is (verdict.value != 0)
    assert lines[-1].startswith("PROVED: " if green else f"{verdict.name}: ")
    said = "ordering PROVED, joined HOLDS_TO_BOUND, closure PROVED"
    of_policies = [line.strip() for line in lines if ": ordering " in line and line[0] == " "]
    assert of_policies == [f"{name}: {said}" for name in NAMED]


@pytest.mark.parametrize(
    ("claim_", "word"), [("5 o", "ordering"), ("9 t", "joined"), ("6 c", "closure")]
)
def test_what_is_said_of_each_policy_is_its_claims_verdict(claim_: str, word: str) -> None:
    results = [r for r in whole() if not r.name.startswith(claim_)]
    assert all(f"{word} UNKNOWN" in line for line in command.by_policy(results))
    assert not any("UNKNOWN" in line for line in command.by_policy(whole()))


def test_a_mutant_that_is_not_refuted_is_not_said_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = whole()
    results[FIRST_MUTANT] = replace(
        results[FIRST_MUTANT], verdict=Verdict.MUTANT_SURVIVED, reason="it holds"
    )
    monkeypatch.setattr(command, "prove_all", lambda *_: iter(results))
    assert command.main([]) == 5
    lines = capsys.readouterr().out.splitlines()
    mutants = [line for line in lines if " mutant '" in line]
    assert [line.split()[0] for line in mutants] == ["MUTANT_SURVIVED"] + ["REFUTED"] * (MANY - 1)
    assert lines[lines.index(mutants[0]) + 1].strip() == "it holds"
    assert lines[-1] == (
        f"MUTANT_SURVIVED: 13 claims, 109 of 109 obligations, {MANY - 1} of {MANY} mutants refuted"
    )
