"""``python -m benchmarks plan --simulated`` at a tiny size: it runs what it says. How near it is to
what was predicted, the benchmark itself says."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from benchmarks import plan_simulated
from benchmarks.__main__ import main
from benchmarks.plan_cases import CASES, TINY_CASES, Case, Slow
from schedule import Ring
from schedule.costs import SECOND, Times
from schedule.policy import NAMED, single_buffer
from schedule.timing import steady
from tests.simdevice.device import SimDevice

# Milliseconds of a pass, where the case's own copies take what it says, and by whom it is bound.
BY_HAND = {
    # Module 8 has a slot with 0 and 4, the others two: 9 copies, and a run that hides nothing.
    "slot_local, N=9, K=4, eager, runs 4, copies 8 ms": (19 * 4, "both in turn"),
    # 8 modules in two slots: a copy each, less the run beside which the first one came.
    "double_buffer, N=10, K=4, captured, runs 4, copies 8 ms": (17 * 4, "both in turn"),
}


def test_cases_are_predicted_and_measured(
    sim: SimDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del sim
    file = tmp_path / "figures.json"
    assert main(["plan", "--simulated", "--tiny", "--json", str(file)]) == 0
    lines = json.loads(file.read_text(encoding="ascii"))["lines"]
    assert [line["what"] for line in lines] == list(map(str, TINY_CASES))
    for line, case in zip(lines, TINY_CASES, strict=True):
        if line["what"] in BY_HAND:
            time, bound = BY_HAND[line["what"]]
            assert line["predicted"] * 1e3 == pytest.approx(time, rel=0.02)
            assert line["bound"] == bound
        compute = (sum(case.run) + sum(case.between)) / 1e3
        assert line["stall"] == pytest.approx(line["predicted"] - compute)
        # Copies and runs are there, and one another's: sane, no more.
        assert compute < line["measured"] < 10 * line["predicted"]
        assert line["away"] == pytest.approx(1 - line["predicted"] / line["measured"])
        assert (line["apart"] is None) == case.captured
        assert line["copies"] > 0
        assert line["equal"]
    assert len(capsys.readouterr().out.splitlines()) == len(lines)


def test_the_grid_has_every_kind() -> None:
    assert len(set(map(str, CASES))) == len(CASES) == 20
    assert {case.policy for case in CASES} == NAMED.keys() - {"modular"}
    assert sum(case.captured for case in CASES) == 9
    assert all(min(*case.run, *case.copy) >= 2 for case in CASES)
    assert any(case.between for case in CASES)


def line_of(case: Case, within: float = math.inf) -> plan_simulated.SimulatedLine:
    effort = replace(plan_simulated.TINY, cases=(case,), within=within)
    with patch.object(plan_simulated, "TINY", effort):
        (line,) = plan_simulated.lines(tiny=True)
    return line


def test_what_is_not_as_it_must_be_fails(sim: SimDevice) -> None:
    """Twins: one that takes another time than is predicted, and one with a wrong output."""
    del sim
    case = Case("slot_local", 1, (2, 2), (2, 2))
    right = line_of(case)
    assert (right.failed, "FAILED" in str(right)) == (False, False)
    times, forward = Case.times, Slow.forward

    def longer(case: Case, sizes: Sequence[int]) -> Times:
        return replace(times(case, sizes), run=(60 * SECOND,) * 2)

    with patch.object(Case, "times", longer):
        late = line_of(case, within=0.5)
    assert (late.failed, late.equal) == (True, True)
    assert str(late).startswith("FAILED: slot_local, N=2, K=1, eager, runs 2, copies 2 ms")

    def wrong(module: Slow, x: torch.Tensor) -> torch.Tensor:
        y = forward(module, x)
        return y if x.device.type == "cpu" else y + 1

    with patch.object(Slow, "forward", wrong):
        differs = line_of(case)
    assert (differs.failed, differs.equal) == (True, False)
    assert "DIFFERS" in str(differs)


def test_what_is_looked_at_is_by_module() -> None:
    """One slot, in which each copy begins when the run before has ended."""
    said = steady(single_buffer(Ring(2, 1)), Times((5, 5), (0, 0, 0), (7, 9)))
    assert (said.time, said.passes) == (5 + 5 + 7 + 9, 1)
    assert plan_simulated._apart([7 / SECOND, 9 / SECOND], said) == 0
    assert plan_simulated._apart([7 / SECOND, 4 / SECOND], said) == pytest.approx(5 / SECOND)
