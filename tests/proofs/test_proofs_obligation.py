"""An obligation is proved when every path keeps it under every seed, and something reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import z3

from proofs import obligation
from proofs.claims import Claim
from proofs.integers import both, either, implies, opposite
from proofs.obligation import Failure, Obligation, Outcome, discharge
from proofs.prove import prove_claim
from proofs.report import Verdict
from proofs.search import Search
from proofs.symbolic import Run, asked
from schedule.budget import OutOfBudget

X_IS_5 = {"x": 5}


def decided(body: Callable[[Run, Any], Any], witness: dict[str, int] = X_IS_5) -> Outcome:
    """What comes of a body of one unknown."""
    return discharge(Obligation("name", "text", lambda run: body(run, run.integer("x")), witness))


def same_parity(run: Run, x: Any) -> Any:
    del run
    return (x % 2 == 0) == (x * x % 2 == 0) if x > 0 else True


TRUE: list[tuple[str, Callable[[Run, Any], Any]]] = [
    ("of a remainder", lambda run, x: both(run, x % 7 < 7, x % 7 >= 0, x // 7 * 7 <= x)),
    ("one of two", lambda run, x: either(run, x > 0, x < 1)),
    ("none of two", lambda run, x: opposite(run, both(run, x > 3, x < 2))),
    ("an implication", lambda run, x: implies(run, x > 4, x > 3)),
    ("of a plain False", lambda run, x: implies(run, False, x > 3)),
    ("a plain True", lambda *_: True),
]


@pytest.mark.parametrize(("name", "body"), TRUE, ids=[name for name, _ in TRUE])
def test_a_true_statement_is_proved(name: str, body: Any) -> None:
    del name
    outcome = decided(body)
    assert (outcome.proved, outcome.vacuous, outcome.paths) == (True, False, 1)
    assert outcome.reason == ""


FALSE: list[tuple[str, Callable[[Run, Any], Any]]] = [
    ("never", lambda _, x: x != x),
    ("not always", lambda _, x: x != 1_000_003),
    ("on one path", lambda _, x: x < 10 if x > 0 else True),
    ("a plain False", lambda _, x: not x > 0),
    ("one of several", lambda run, x: both(run, x == x, x >= 0)),
    ("neither of two", lambda run, x: either(run, x > 0, x < 0)),
    ("the opposite", lambda run, x: opposite(run, x == 3)),
    ("an implication", lambda run, x: implies(run, x > 3, x > 4)),
    ("of a quotient", lambda _, x: x // 7 * 7 == x),
    ("not known to the solver", same_parity),  # true; but linear arithmetic can't tell
]


@pytest.mark.parametrize(("name", "body"), FALSE, ids=[name for name, _ in FALSE])
def test_a_false_statement_is_not_proved(name: str, body: Any) -> None:
    del name
    outcome = decided(body)
    assert (outcome.proved, outcome.vacuous) == (False, False)
    assert outcome.reason == "the statement may fail (sat with seed 0)"


def test_paths_are_counted_up_to_the_first_that_fails_by_itself() -> None:
    def body(_: Run, x: Any) -> Any:
        return x < 2 if x > 1 else x < 0 if x > 0 else True

    assert decided(body).paths == 3
    assert decided(lambda _, x: Failure("no") if x > 1 else x < 9).paths == 1


def test_a_failure_on_a_path_that_something_takes_is_not_proved() -> None:
    outcome = decided(lambda _, x: Failure("ownership") if x > 9 else True)
    assert not outcome.proved
    assert outcome.reason == "ownership (sat with seed 0)"


def test_a_failure_on_a_path_that_nothing_takes_is_no_failure() -> None:
    def body(run: Run, x: Any) -> Any:
        half = x // 2
        run.assume(x > 9)
        return Failure("half is small") if half < 4 else True

    outcome = decided(body, {"x": 10})
    assert (outcome.proved, outcome.vacuous, outcome.reason) == (True, False, "")


def raises(error: BaseException) -> Callable[[Run, Any], Any]:
    def body(_: Run, x: Any) -> Any:
        if x > 1000:
            raise error
        return True

    return body


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad"), "raised ValueError: bad"),
        (ZeroDivisionError("zero"), "raised ZeroDivisionError: zero"),
        (RecursionError("deep"), "raised RecursionError: deep"),
        (OutOfBudget("too long"), "not followed: too long"),
    ],
)
def test_what_raises_on_a_path_is_not_proved(error: BaseException, reason: str) -> None:
    outcome = decided(raises(error))
    assert (outcome.proved, outcome.vacuous, outcome.reason) == (False, False, reason)


def test_a_division_by_what_may_be_zero_is_not_proved() -> None:
    outcome = decided(lambda _, x: 7 // x <= 7)
    assert outcome.reason == "raised ZeroDivisionError: integer division or modulo by zero"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_proof_stops_it(error: type[BaseException]) -> None:
    with pytest.raises(error):
        decided(raises(error()))


# ---- vacuous


def contradicts(run: Run, x: Any) -> Any:
    run.assume(x > 3, x < 4)
    return x == 77


def contradicts_late(run: Run, x: Any) -> Any:
    return both(run, x == 77) if x > 3 and x < 4 else contradicts(run, x)


def no_path(run: Run, x: Any) -> Any:
    run.assume(x > 3, x < 4)
    return True if x > 5 else x == 77


@pytest.mark.parametrize(("body", "paths"), [(contradicts, 1), (contradicts_late, 2), (no_path, 0)])
def test_assumptions_that_contradict_prove_nothing(body: Any, paths: int) -> None:
    outcome = decided(body)
    assert outcome.vacuous
    assert outcome.paths == paths


def test_a_witness_outside_the_assumptions_is_vacuous() -> None:
    def body(run: Run, x: Any) -> Any:
        run.assume(x > 3)
        return x > 2

    assert not decided(body, {"x": 4}).vacuous
    assert decided(body, {"x": 3}).vacuous


def test_a_witness_that_only_false_products_fulfil_is_vacuous() -> None:
    def body(run: Run, x: Any) -> Any:
        y = run.integer("y")
        run.assume(x * y == 7)
        return True

    assert not decided(body, {"x": 1, "y": 7}).vacuous
    assert decided(body, {"x": 2, "y": 3}).vacuous


@pytest.mark.parametrize("body", [contradicts, contradicts_late, no_path])
def test_a_vacuous_obligation_makes_its_claim_vacuous(body: Any) -> None:
    good = Obligation("good", "text", lambda run: run.integer("x") * 0 == 0, {})
    empty = Obligation("empty", "text", lambda run: body(run, run.integer("x")), X_IS_5)
    result = prove_claim(Claim(1, "title", "statement", "all", (good, empty)))
    assert result.verdict is Verdict.VACUOUS
    assert result.verdict.value == 4
    assert result.reason == "empty: its witness reaches no path"
    assert result.obligations == 2


def test_a_claim_of_nothing_is_not_proved() -> None:
    assert prove_claim(Claim(1, "title", "statement", "all")).verdict is Verdict.UNKNOWN


def test_a_claim_with_an_unproved_obligation_names_it() -> None:
    obligations = [
        Obligation(name, "text", lambda run, low=low: run.integer("x") % 5 >= low, X_IS_5)
        for name, low in (("right", 0), ("wrong", 1), ("also wrong", 2))
    ]
    result = prove_claim(Claim(1, "title", "statement", "all", tuple(obligations)))
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason == (
        "wrong: the statement may fail (sat with seed 0); "
        "also wrong: the statement may fail (sat with seed 0)"
    )
    assert result.size == "3 obligations on 3 paths, 3 seeds"


@pytest.mark.parametrize(
    ("found", "verdict"), [(None, Verdict.HOLDS_TO_BOUND), ("N=3, K=2", Verdict.VIOLATED)]
)
def test_a_claim_to_a_bound_is_never_proved(found: str | None, verdict: Verdict) -> None:
    parts = [Search(3), Search(2, found), Search(4)]
    claim = Claim(10, "title", "statement", "to 3", search=lambda n, _: parts[n - 1], largest=3)
    result = prove_claim(claim)
    assert (result.verdict, result.reason) == (verdict, found or "")
    assert result.looked_at == (5 if found else 9)


# ---- seeds


def test_all_paths_are_decided_under_three_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noted(condition: str, seed: int) -> Any:
        seeds.append(seed)
        return asked(condition, seed)

    monkeypatch.setattr(obligation, "asked", noted)
    outcome = decided(lambda _, x: x >= 0 if x > 0 else x < 1)
    assert outcome.proved
    assert outcome.paths == 2
    assert seeds == [0, 1, 2]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("answer", [z3.unknown, z3.sat])
def test_one_seed_that_does_not_agree_is_enough(
    answer: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsure(condition: str, chosen: int) -> Any:
        found, used = asked(condition, chosen)
        return (answer if chosen == seed else found), used

    monkeypatch.setattr(obligation, "asked", unsure)
    outcome = decided(lambda _, x: x + 1 > x)
    assert not outcome.proved
    assert outcome.reason == f"all paths together ({answer} with seed {seed})"


def test_the_resources_of_all_seeds_are_counted_and_the_same_again() -> None:
    first, again = (decided(lambda _, x: x * x >= x if x > 3 else True) for _ in range(2))
    assert first.resources == again.resources > 0


def test_the_formula_is_the_obligation_and_has_no_solution() -> None:
    """As text, for another solver: some path's conditions, and the statement's opposite."""
    outcome = decided(lambda _, x: x >= 1 if x > 0 else x < 1)
    again = z3.Solver()
    again.from_string(outcome.formula)
    assert again.check() == z3.unsat
    assert outcome.formula.startswith("(set-logic ALL)")
    assert outcome.formula.count("(> x 0)") == 2
    refuted = decided(lambda _, x: x > 0)
    assert (refuted.proved, refuted.formula) == (False, "")


def test_a_size_that_is_pinned_is_seen() -> None:
    def sized(pinned: bool) -> Outcome:
        def body(run: Run) -> Any:
            n, k = run.integer("N"), run.integer("K")
            run.assume(n >= 1, k == n if pinned else k >= 1, n == 5 if pinned else True)
            return n >= 1

        return discharge(Obligation("name", "text", body, {"N": 5, "K": 5}))

    assert (sized(False).proved, sized(False).pinned) == (True, ())
    assert (sized(True).proved, sized(True).pinned) == (True, ("N", "K"))
