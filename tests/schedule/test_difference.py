"""``python -m schedule diff``: one ring entry by entry, and every ring to a bound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedule import Policy, PolicyError, Refill, Ring, Schedule, policies
from schedule.__main__ import main
from schedule.difference import compared, compared_rings


def diff(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["diff", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads("\n".join(diff(capsys, *arguments, "--json")))


# ---- every ring to a bound


def test_modular_and_slot_local_differ_in_the_verdict_of_exactly_two_rings_to_four(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1 < K < N where K does not divide N: (3, 2) and (4, 3). Targets (2, 0, 1) and (2, 1, 0);
    (3, 0, 1, 2) and (3, 1, 2, 0)."""
    assert diff(capsys, "modular", "slot_local", "--to", "4") == [
        "N=3, K=2: after[1-2]; VIOLATED -> VERIFIED; copies 3; smallest window none -> 0",
        "N=4, K=3: after[1-3]; VIOLATED -> VERIFIED; copies 4; smallest window none -> 0",
        "2 of 16 rings to 4x4 differ; what changes: verdict in 2, copies in 0, windows in 2",
    ]


def test_chain_and_slot_local_differ_in_copies_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """In modules that own their slot: all where K >= N, one of three at (3, 2)."""
    assert diff(capsys, "chain", "slot_local", "--to", "3") == [
        "N=1, K=1: after[0]; VERIFIED; copies 0 -> 1; smallest window none",
        "N=1, K=2: after[0]; VERIFIED; copies 0 -> 1; smallest window none",
        "N=1, K=3: after[0]; VERIFIED; copies 0 -> 1; smallest window none",
        "N=2, K=2: after[0-1]; VERIFIED; copies 0 -> 2; smallest window none",
        "N=2, K=3: after[0-1]; VERIFIED; copies 0 -> 2; smallest window none",
        "N=3, K=2: after[1]; VERIFIED; copies 2 -> 3; smallest window 0",
        "N=3, K=3: after[0-2]; VERIFIED; copies 0 -> 3; smallest window none",
        "7 of 9 rings to 3x3 differ; what changes: verdict in 0, copies in 7, windows in 0",
    ]


def test_chain_and_balanced_differ_in_windows(capsys: pytest.CaptureFixture[str]) -> None:
    """To 4x4 at (4, 3): slots 0 1 2 0, where 0 follows 3 at once; and 2 1 0 1, where one module
    runs between 3 and 1, and one between 1 and 3."""
    assert diff(capsys, "chain", "balanced", "--to", "4") == [
        "N=4, K=3: slot_of[0, 2-3], preload[0, 2], after[0-1, 3]; VERIFIED; copies 2; "
        "smallest window 0 -> 1",
        "1 of 16 rings to 4x4 differ; what changes: verdict in 0, copies in 0, windows in 1",
    ]


def test_equal_policies_are_said_to_be_equal_to_the_bound(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert diff(capsys, "chain", "chain") == ["the same schedule for all rings to 12x12"]
    assert diff(capsys, "modular", "slot_local", "--to", "2") == [
        "the same schedule for all rings to 2x2"
    ]


def test_rings_that_one_policy_has_alone_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    why = "policy double_buffer needs at least 2 slots, got 1; give more slots or choose "
    alone = [f"N={n}, K=1: chain alone; {why}single_buffer" for n in (1, 2)]
    assert diff(capsys, "double_buffer", "chain", "--to", "2") == [
        *alone,
        "the same schedule for all 2 rings to 2x2 that have both; 2 rings with chain alone",
    ]
    assert diff(capsys, "chain", "double_buffer", "--to", "2")[:2] == alone
    lines = diff(capsys, "one_ahead", "double_buffer", "--to", "2")
    assert [line.partition(":")[0] for line in lines[:-1]] == ["N=1, K=2", "N=2, K=2"]
    assert lines[-1].endswith("windows in 0; 2 rings with neither")


def test_a_period_that_is_refused_is_said_with_its_ring() -> None:
    long = Policy("long", policies.chain.slot_of, passes=lambda ring: 10**6 * (ring.slots - 1) + 1)
    found = compared_rings(long, policies.chain, 2)
    assert [one.line() for one in found.alone] == [
        f"N={n}, K=2: chain alone; policy long gives a period of 1000001 passes in "
        f"Ring(modules={n}, slots=2); a period has at most 1000000 steps: choose other sizes"
        for n in (1, 2)
    ]
    assert str(found).endswith("that have both; 2 rings with chain alone")
    assert "all 2 rings to 2x2" in str(found)


def test_as_json_every_ring_is_as_one_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "modular", "slot_local", "--to", "3")
    one = as_json(capsys, "modular", "slot_local", "--modules", "3", "--slots", "2")
    assert found == {
        "first": "modular",
        "second": "slot_local",
        "to": 3,
        "both": 9,
        "changes": {"verdict": 1, "copies": 0, "windows": 1},
        "differing": [one],
        "alone": [],
    }
    assert one["changes"] == ["verdict", "windows"]
    assert (one["first"]["windows"], one["second"]["windows"]) == ([None] * 3, [0, None, 1])
    assert one["differences"][0] == {
        "table": "after",
        "at": 1,
        "first": [{"slot": 0, "module": 0}],
        "second": [{"slot": 1, "module": 1}],
    }
    alone = as_json(capsys, "chain", "one_ahead", "--to", "2")["alone"]
    assert [(row["modules"], row["slots"], row["policy"]) for row in alone] == [
        (1, 1, "chain"),
        (2, 1, "chain"),
    ]


# ---- one ring


def test_one_ring_is_told_entry_by_entry_with_its_windows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert diff(capsys, "chain", "balanced", "--modules", "4", "--slots", "3") == [
        "chain: VERIFIED, 2 copies a pass, 0 of them useless, smallest window 0",
        "balanced: VERIFIED, 2 copies a pass, 0 of them useless, smallest window 1",
        "slot_of[0]: slot 0 | slot 2",
        "slot_of[2]: slot 2 | slot 0",
        "slot_of[3]: slot 0 | slot 1",
        "preload[0]: module 0 into slot 0 | module 2 into slot 0",
        "preload[2]: module 2 into slot 2 | module 0 into slot 2",
        "after[0]: module 3 into slot 0 | no refill",
        "after[1]: no refill | module 3 into slot 1",
        "after[3]: module 0 into slot 0 | module 1 into slot 1",
        "window[0]: 0 runs | none",
        "window[1]: none | 1 run",
        "window[3]: 2 runs | 1 run",
    ]


def test_the_same_windows_in_a_longer_period_are_no_change() -> None:
    twice = Policy("twice", lambda step, ring: step % ring.modules % ring.slots, passes=lambda _: 2)
    found = compared(policies.chain(Ring(3, 2)), twice(Ring(3, 2)))
    assert found.second.windows == 2 * found.first.windows == 2 * (0, None, 1)
    assert found.changes == ()
    # The second pass: three slots, and the boundaries before and after three, one enter and leave.
    assert [str(entry) for entry in found.entries[:3]] == [
        f"slot_of[{step}]: nothing | slot {step % 3 % 2}" for step in (3, 4, 5)
    ]
    assert len(found.entries) == 3 + 2 * 3 + 2
    assert "window[" not in str(found)
    thrice = Policy("thrice", twice.slot_of, passes=lambda _: 3)
    assert compared(twice(Ring(3, 2)), thrice(Ring(3, 2))).changes == ()


def test_copies_that_differ_by_less_than_one_a_pass_differ() -> None:
    def made(*after: tuple[Refill, ...]) -> Schedule:
        nothing = ((), ())
        return Schedule(
            Ring(1, 1), "two", (0, 0), (Refill(0, 0),), nothing, nothing, after, nothing
        )

    once, twice = made((Refill(0, 0),), ()), made((Refill(0, 0),), (Refill(0, 0),))
    found = compared(made((), ()), once)
    assert found.changes == ("copies",)
    assert found.line() == ("N=1, K=1: after[0]; VERIFIED; copies 0 -> 0.5; smallest window none")
    assert "copies 0.5 -> 1;" in compared(once, twice).line()


# ---- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chain", "balanced", "--modules", "3"], "give both --modules and --slots, or neither"),
        (["chain", "balanced", "--slots", "3"], "give both --modules and --slots, or neither"),
        (["chain", "balanced", "--modules", "3", "--slots", "2", "--to", "4"], "--to is for many"),
        (["chain", "balanced", "--to", "0"], "compared to a size of at least 1, got 0"),
        (["chain", "nope"], "no policy is called 'nope'"),
        (["chain", "one_ahead", "--to", "1"], "no ring to 1x1 has both policies: N=1, K=1: chain "),
        (["chain", "one_ahead", "--modules", "1", "--slots", "1"], "at least 2 slots, got 1"),
    ],
)
def test_bad_input_prints_nothing(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["diff", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert message in captured.err


def test_a_policy_that_is_broken_everywhere_is_bad_input() -> None:
    broken = policies.of_target(lambda *_: 0.5, "broken")  # type: ignore[arg-type, return-value]
    with pytest.raises(PolicyError, match=r"has both policies: N=1, K=1: chain alone; .* 0\.5"):
        compared_rings(broken, policies.chain, 3)
