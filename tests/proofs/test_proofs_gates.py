"""Each gate, broken by itself: its verdict, what it says, and the exit code of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from proofs import __main__ as command
from proofs import gates as gates_module
from proofs.claims import EXPECTED_OBLIGATIONS, SEARCHED, claims
from proofs.gates import gates, total
from proofs.mutants import MUTANTS
from proofs.obligation import System
from proofs.prove import Result, chosen
from proofs.report import Verdict
from tests.proofs.results import FIRST_MUTANT, MANY, whole

NAMES = ("count", "witnesses", "sizes", "mutants", "kills", "second solver", "engines")


@pytest.fixture(autouse=True)
def _with_a_second_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates_module, "second_solver", lambda: "cvc5 9")


def part_changed(results: list[Result], **changes: object) -> list[Result]:
    """The second part of claim 2 is another."""
    at = next(n for n, result in enumerate(results) if result.name.startswith("2 "))
    parts = list(results[at].parts)
    parts[1] = replace(parts[1], **changes)  # type: ignore[arg-type]
    results[at] = replace(results[at], parts=tuple(parts))
    return results


def vacuous(results: list[Result]) -> list[Result]:
    results = part_changed(results, verdict=Verdict.VACUOUS)
    at = next(n for n, result in enumerate(results) if result.name.startswith("2 "))
    results[at] = replace(results[at], verdict=Verdict.VACUOUS)
    return results


def without_kills(results: list[Result]) -> list[Result]:
    """No mutant refutes the lemma ``round`` of claim 8 any more."""
    return [
        replace(result, killed=tuple(one for one in result.killed if one != (8, "round")))
        for result in results
    ]


def surviving(results: list[Result]) -> list[Result]:
    results[FIRST_MUTANT] = replace(
        results[FIRST_MUTANT], verdict=Verdict.MUTANT_SURVIVED, reason="it holds"
    )
    return results


def disagreeing(results: list[Result]) -> list[Result]:
    at = next(n for n, result in enumerate(results) if result.name == "11 engines")
    results[at] = replace(results[at], verdict=Verdict.DISAGREE)
    return results


BROKEN: dict[str, tuple[str, Callable[[list[Result]], list[Result]], Verdict, str]] = {
    "a mutant is missing": (
        "count",
        lambda results: results[:-1],
        Verdict.UNKNOWN,
        f"13 claims, 109 obligations, {MANY - 1} mutants; expected are 13, 109, {MANY}",
    ),
    "an obligation is vacuous": (
        "witnesses",
        vacuous,
        Verdict.VACUOUS,
        "108 of 109 obligations hold of their witness; not claim 2, double_buffer: slots",
    ),
    "a size is pinned": (
        "sizes",
        lambda results: part_changed(results, pinned=("K",)),
        Verdict.VACUOUS,
        "108 of 109 obligations leave N and K free; not claim 2, double_buffer: slots",
    ),
    "a mutant survives": (
        "mutants",
        surviving,
        Verdict.MUTANT_SURVIVED,
        f"{MANY - 1} of {MANY} are refuted, their smallest pinned; not no WAR guard",
    ),
    "nothing kills an obligation": (
        "kills",
        without_kills,
        Verdict.MUTANT_SURVIVED,
        "108 of 109 obligations fail of some mutant; not claim 8, round",
    ),
    "the second solver finds a solution": (
        "second solver",
        lambda results: part_changed(results, second="sat"),
        Verdict.DISAGREE,
        "cvc5 9 agrees on 108 of 109 obligations; not claim 2, double_buffer: slots: sat",
    ),
    "the second solver does not know": (
        "second solver",
        lambda results: part_changed(results, second="unknown (RESOURCEOUT)"),
        Verdict.UNKNOWN,
        "cvc5 9 agrees on 108 of 109 obligations; not claim 2, double_buffer: slots: "
        "unknown (RESOURCEOUT)",
    ),
    "two engines differ": (
        "engines",
        disagreeing,
        Verdict.DISAGREE,
        "3 of 4 claims to a bound hold, in which engines agree; not claim 11 engines",
    ),
}


def test_all_gates_of_a_whole_run_are_passed() -> None:
    found = gates(whole())
    assert tuple(gate.name for gate in found) == NAMES
    assert {gate.verdict for gate in found} == {Verdict.PROVED}
    assert total(whole())[0] is Verdict.PROVED
    assert {gate for gate, *_ in BROKEN.values()} == set(NAMES)


@pytest.mark.parametrize("what", BROKEN)
def test_a_gate_that_is_broken_says_so_and_is_the_exit_code(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, change, verdict, text = BROKEN[what]
    results = change(whole())
    found = {gate.name: gate for gate in gates(results)}
    assert (found[name].verdict, found[name].text) == (verdict, text)
    others = {gate.verdict for gate in found.values() if gate.name not in (name, "kills")}
    assert others == {Verdict.PROVED}
    monkeypatch.setattr(command, "prove_all", lambda *_: iter(results))
    assert command.main([]) == verdict.value != 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{verdict.name:<15} gate {name}: {text}" in lines
    assert lines[-1].startswith(f"{verdict.name}: ")


def test_a_missing_second_solver_is_said_and_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [
        replace(result, parts=tuple(replace(part, second=None) for part in result.parts))
        for result in whole()
    ]
    monkeypatch.setattr(gates_module, "second_solver", lambda: None)
    monkeypatch.setattr(command, "prove_all", lambda *_: iter(results))
    assert command.main([]) == 0
    assert (
        "NOT_ASKED       gate second solver: not installed, so nothing was asked: "
        "pip install 'ringproof[crosscheck]'"
    ) in capsys.readouterr().out.splitlines()
    # With the solver there, no answer is no agreement.
    monkeypatch.setattr(gates_module, "second_solver", lambda: "cvc5 9")
    assert total(results)[0] is Verdict.UNKNOWN


@pytest.mark.parametrize("number", [9, 10, 11, 12])
def test_a_search_that_was_cut_short_is_no_pass(number: int) -> None:
    results = whole()
    assert results[number].looked_at == SEARCHED[number] > 300
    results[number] = replace(results[number], looked_at=SEARCHED[number] - 1)
    (count, *_) = gates(results)
    assert count.verdict is Verdict.UNKNOWN
    name = results[number].name
    assert count.text.endswith(f"mutants; claim {name} did not look at all that it should")


def test_claims_and_obligations_are_counted_part_by_part() -> None:
    results = whole()
    results[0] = replace(results[0], parts=results[0].parts[1:])
    assert gates(results)[0].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("only", [[3], [8], [2, 9]])
def test_some_claims_alone_are_a_run_of_their_own(only: list[int]) -> None:
    """With the mutants that their obligations need, though these belong to other claims too."""
    results = [
        result
        for (claim, number), result in zip(chosen(), whole(), strict=True)
        if (claim, number) in chosen(only)
    ]
    verdict, line = total(results, only)
    assert verdict is Verdict.PROVED
    assert line.startswith(f"PROVED: {len(only)} claims, ")
    kills = {gate.name: gate for gate in gates(results, only)}["kills"]
    assert kills.verdict is Verdict.PROVED
    assert total(results[1:], only)[0] is Verdict.UNKNOWN


def test_every_obligation_is_named_by_a_mutant() -> None:
    """What ``kills`` looks at is not left to the results above."""
    there = {(claim.number, one.name) for claim in claims(System()) for one in claim.obligations}
    named = {(one.claim, one.obligation) for one in MUTANTS if one.obligation}
    named |= {other for one in MUTANTS for other in one.also}
    assert named == there
    assert len(there) == EXPECTED_OBLIGATIONS


# ---- nothing hides behind another


def test_an_obligation_of_another_s_name_is_not_hidden_by_it() -> None:
    results = whole()
    first = results[0]
    hidden, hiding = first.parts[0], replace(first.parts[1], name=first.parts[0].name)
    parts = (hidden, hiding, *first.parts[2:])
    results[0] = replace(first, parts=parts)
    assert gates(results)[0].verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("change", ["none", "one more", "one is unknown", "one has no formula"])
def test_of_some_claims_too_every_obligation_is_counted_and_looked_at(change: str) -> None:
    pairs = zip(chosen(), whole(), strict=True)
    results = [result for which, result in pairs if which in chosen([4])]
    assert total(results, [4])[0] is Verdict.PROVED
    parts = results[0].parts
    changed = {
        "none": (),
        "one more": (*parts, replace(parts[0], name="invented")),
        "one is unknown": (replace(parts[0], verdict=Verdict.UNKNOWN), *parts[1:]),
        "one has no formula": (replace(parts[0], formula="", second=None), *parts[1:]),
    }[change]
    results[0] = replace(results[0], parts=changed)
    assert total(results, [4])[0] is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "arguments",
    [["--list", "--json"], ["--junit", "x", "policy", "chain"], ["--only", "4", "engines"]],
)
def test_a_report_that_would_not_be_written_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == Verdict.USAGE.value
    assert "goes with the proof of the claims alone" in capsys.readouterr().err
