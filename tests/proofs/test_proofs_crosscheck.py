"""The second solver reads what Z3 answered, and its answer is its own."""

from __future__ import annotations

import sys

import pytest

from proofs import crosscheck
from proofs.claims import claims
from proofs.crosscheck import AGREES, second_answer, second_solver
from proofs.obligation import System, discharge
from proofs.prove import part_of

HEAD = "(set-logic ALL)\n(declare-fun x () Int)\n"
pytest.importorskip("cvc5")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("(assert (> x 0))(check-sat)", "sat"),
        ("(assert (> x 0))(assert (< x 0))(check-sat)", "unsat"),
        ("(assert (> x 0))", ""),
    ],
)
def test_it_answers_by_itself(text: str, answer: str) -> None:
    assert second_answer(HEAD + text) == answer
    assert (answer == AGREES) == (answer == "unsat")


def test_what_it_can_not_read_is_no_agreement() -> None:
    answer = second_answer("(nonsense)")
    assert answer is not None
    assert answer.startswith("error: ")


def test_its_work_is_limited_by_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    (claim,) = (one for one in claims(System()) if one.number == 4)
    formula = discharge(claim.obligations[1]).formula
    assert second_answer(formula) == AGREES
    monkeypatch.setattr(crosscheck, "RESOURCES", 1_000)
    assert second_answer(formula) == "unknown (RESOURCEOUT)"


def test_without_it_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(second_solver()).startswith("cvc5 1.")
    monkeypatch.setattr(crosscheck, "find_spec", lambda _: None)
    assert second_solver() is None
    assert second_answer(HEAD) is None


def test_each_part_has_its_answer() -> None:
    (claim,) = (one for one in claims(System()) if one.number == 4)
    for obligation in claim.obligations:
        part = part_of(discharge(obligation))
        assert (part.second, part.pinned, part.reason) == (AGREES, (), "")
        assert part.where[0] == "proofs/rules.py"
        assert part.resources > 0


def test_a_broken_installation_is_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crosscheck, "find_spec", lambda _: "there")
    monkeypatch.setitem(sys.modules, "cvc5", None)  # its import fails
    answer = second_answer(HEAD)
    assert answer is not None
    assert answer.startswith("error: ModuleNotFoundError: ")
