"""``python -m proofs engines``: every ring to a bound, its count, and what a difference is."""

from __future__ import annotations

import pytest

from proofs import __main__ as command
from proofs import compare
from proofs.cases import Bounds
from proofs.mutants_order import ORDER_MUTANTS
from proofs.mutation import apply
from proofs.obligation import System
from proofs.report import Verdict
from schedule import Ring

BLIND = next(one for one in ORDER_MUTANTS if one.name == "clocks blind to WAR")
ONE = Bounds(2, 2, 2, 2, solver=1)


def test_every_program_of_a_ring_is_counted_and_agrees() -> None:
    """Graphs in pieces that are not joined have too many interleavings, on two kinds of streams."""
    compared = compare.at(Ring(2, 1), ONE, System())
    assert (compared.programs, compared.wholly, compared.found) == (378, 376, None)
    assert str(compared) == "N=2, K=1: 378 programs, 376 wholly"


def test_a_bound_leaves_out_what_is_beyond_it() -> None:
    few = compare.at(Ring(2, 1), Bounds(2, 1, 1, 1, solver=1), System())
    assert 0 < few.programs < 378


def test_an_engine_that_is_blind_is_seen_at_its_ring() -> None:
    compared = compare.at(Ring(2, 1), ONE, apply(BLIND, System()))
    assert compared.found is not None
    assert str(compared) == compared.found
    assert compared.found.startswith("N=2, K=1, ")
    assert "interleavings WAR" in compared.found


def test_the_command_says_how_far_it_looked(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["engines", "--to", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "N=1, K=1: 513 programs, 513 wholly",
        "HOLDS_TO_BOUND: the engines agree on 513 programs of all rings to 1x1; every "
        "interleaving of 513 of them was visited",
    ]


def test_a_difference_has_its_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compare.Compared(Ring(1, 1), 3, 3, "N=1, K=1, ...: clocks find nothing more, ...")
    monkeypatch.setattr(command, "compare_all", lambda *_: iter([found]))
    assert command.main(["engines", "--to", "1"]) == Verdict.DISAGREE.value == 6
    assert capsys.readouterr().out.startswith("DISAGREE: N=1, K=1, ")


@pytest.mark.parametrize("size", ["0", "-1", "x"])
def test_a_bound_that_is_none_is_a_usage_error(
    size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["engines", "--to", size])
    assert stopped.value.code == Verdict.USAGE.value
    text = capsys.readouterr().err
    assert ("invalid int" if size == "x" else "at least 1 module and 1 slot") in text
