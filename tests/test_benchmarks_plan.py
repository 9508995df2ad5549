"""``python -m benchmarks plan``: what it says of a grid follows from the plans; what would be wrong
with them, it says."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest

from benchmarks import plan, plan_grid
from benchmarks.__main__ import main
from benchmarks.plan import BOUND, FIGURES, PlanLine
from benchmarks.plan_grid import (
    ALL,
    BEST,
    EQUAL,
    EXACTLY,
    RATIOS,
    SOME,
    Answer,
    Question,
    answers,
    as_merged,
    questions,
    slots_of,
)
from benchmarks.plan_models import UNIT, deepseek_v3, equal, flux, gemma_3_27b
from schedule.costs import SECOND
from schedule.plan import Planner
from schedule.policy import NAMED

POLICIES = NAMED.keys() - {"modular"}


def test_plans_are_held_against_everything_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["plan", "--tiny", "--json", str(file)]) == 0
    lines = json.loads(file.read_text(encoding="ascii"))["lines"]
    assert len(capsys.readouterr().out.splitlines()) == len(lines)
    rows = [line for line in lines if line["part"] == "plan"]
    hows = [f"{how}, {what}" for how in ("eager", "captured") for what in ("whole", "in parts")]
    groups = (EQUAL, "the three models", "DeepSeek-V3", "Gemma 3 27B", "FLUX.1")
    assert list(dict.fromkeys(row["what"] for row in rows)) == [
        f"{group}, {how}" for group in groups for how in hows
    ]
    for row in rows:
        assert row["least"] <= row["mean"] <= row["most"]
        if row["against"] == BOUND:
            assert (row["better"], row["most"] <= 1) == (None, True)
        else:
            assert row["least"] >= 1
            assert (row["better"] == 0) == (row["most"] == 1)
    everything = {BOUND, EXACTLY, BEST, "vLLM"} | POLICIES
    assert {row["against"] for row in rows if row["what"].startswith(EQUAL)} == everything
    ours = {row["against"] for row in rows if row["what"].startswith("FLUX.1")}
    assert ours == {BOUND, EXACTLY, BEST}
    three = [row for row in rows if row["what"].startswith("the three models")]
    best = [row for row in three if row["against"] == BEST and row["what"].endswith("in parts")]
    assert [(row["cases"], row["better"]) for row in best] == [(3, 1.0)] * 2
    figures = [line for line in lines if line["part"] == "figures"]
    assert [line["by_slot_local"] for line in figures] == [19, 20, 19, 21]
    assert [line["most"] for line in figures] == list(FIGURES.values()) == [15, 16, 17, 19]
    assert all(line["planned"] <= line["most"] for line in figures)


def answer(time: int, bound: int, **others: int) -> Answer:
    return Answer(EQUAL, False, True, Fraction(time), Fraction(bound), dict_of(**others))


def dict_of(**others: int) -> dict[str, Fraction]:
    return {name: Fraction(value) for name, value in others.items()}


def test_means_and_shares_are_of_the_cases_that_fit() -> None:
    """By hand: twice, and half as long again; and one that has two slots at least."""
    rows = [
        answer(10, 8, chain=20),
        answer(10, 10, chain=15, one_ahead=10),
        answer(10, 5, chain=10),
    ]
    lower, chain, ahead = plan._against(rows)
    what = "equal modules, eager, in parts"
    assert chain == PlanLine(what, "chain", 3, pytest.approx(3 ** (1 / 3)), 2.0, 1.0, 2 / 3, False)
    assert ahead == PlanLine(what, "one_ahead", 1, 1.0, 1.0, 1.0, 0.0, False)
    assert lower == PlanLine(what, BOUND, 3, pytest.approx(0.4 ** (1 / 3)), 1.0, 0.5, None, False)
    assert "FAILED" not in f"{lower} {chain} {ahead}"


def test_a_plan_that_is_worse_than_something_or_better_than_its_bound_fails() -> None:
    """Twins, by less than a float can tell."""
    huge = 10**30
    (lower, chain) = plan._against([answer(huge + 1, huge, chain=huge), answer(1, 1, chain=9)])
    assert (lower.failed, chain.failed, chain.least) == (False, True, 1.0)
    assert str(chain).endswith("FAILED")
    (lower, chain) = plan._against([answer(huge, huge + 1, chain=huge)])
    assert (lower.failed, chain.failed) == (True, False)


def test_a_figure_that_is_not_reached_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not plan.figure(9, False).failed
    monkeypatch.setitem(FIGURES, (9, False), 1)
    assert str(plan.figure(9, False)).endswith("19 by slot_local  FAILED")


def test_an_answer_is_the_plan_and_what_else_fits() -> None:
    costs, budget = equal(5, Fraction(4)), 3 * UNIT
    for captured in (False, True):
        (found,) = answers(Question("a", costs, (budget,), captured, parts=False))
        plan = Planner(costs, captured=captured, parts=False).plan(budget)
        assert (found.time, found.bound) == (plan.time, plan.bound)
        assert found.others.keys() == {EXACTLY, BEST, "vLLM"} | POLICIES
        assert found.others[BEST] == plan.others[0].time >= found.time
        assert found.others[EXACTLY] >= found.others["slot_local"]


def test_slot_local_as_merged_has_as_many_slots_as_fit() -> None:
    """Of two sizes each slot is as large as the largest that uses it."""
    costs = deepseek_v3(Fraction(2))
    dense, *_, sparse = costs.sizes
    assert as_merged(costs, 20 * sparse).schedule.ring.slots == 20
    assert as_merged(costs, 20 * sparse - 1).schedule.ring.slots == 19
    assert as_merged(costs, costs.whole).size == costs.whole < 61 * sparse
    assert as_merged(equal(9, Fraction(2)), 4 * UNIT).schedule.ring.slots == 4
    assert dense < sparse


def test_models_have_the_shapes_of_the_public_ones() -> None:
    """Weights of all blocks, in thousand millions; published are 671, 27 and 12 with the rest."""
    ratio = Fraction(40)
    deepseek, gemma, flux_ = deepseek_v3(ratio), gemma_3_27b(ratio), flux(ratio)
    assert [len(one.modules) for one in (deepseek, gemma, flux_)] == [61, 62, 57]
    experts = sum(
        part.size for one in deepseek.modules for part in one.parts if "experts" in part.name
    )
    gates = sum(part.size for one in deepseek.modules for part in one.parts if part.name == "gate")
    whole = sum(deepseek.sizes) - gates / 2 + 7 * experts
    embeddings = 2 * 129_280 * 7168
    assert (whole + embeddings) / 1e9 == pytest.approx(671, rel=0.001)
    assert deepseek.sizes[-1] / 1e9 == pytest.approx(1.7, rel=0.05)
    assert sum(gemma.sizes) / 2e9 == pytest.approx(27.0 - 1.4, rel=0.01)
    assert sum(flux_.sizes) / 2e9 == pytest.approx(11.9, rel=0.01)
    for costs in (deepseek, gemma, flux_, equal(7, ratio)):
        (workload,) = costs.workloads
        copies = sum(costs.sizes) * SECOND / costs.link.bandwidth
        assert copies / workload.total == pytest.approx(40, rel=1e-6)
        assert len(set(zip(costs.sizes, workload.compute, strict=True))) == 1 + (
            costs.model[0] != "e"
        )


def test_the_grid_is_the_one_that_is_said() -> None:
    asked = list(questions())
    same = [one for one in asked if one.group == EQUAL and not one.captured and not one.parts]
    places = {
        (len(one.costs.modules), budget // UNIT, one.costs.link.bandwidth)
        for one in same
        for budget in one.budgets
    }
    for modules in ALL:
        assert sum(n == modules for n, *_ in places) == (modules - 1) * len(RATIOS)
    for modules in SOME:
        slots = {k for n, k, _ in places if n == modules}
        assert slots == {2, modules // 4, modules // 2, modules * 3 // 4}
        assert sum(n == modules for n, *_ in places) == 4 * len(RATIOS) // 2
    assert len(asked) % 4 == 0  # each eager and captured, in whole modules and in parts
    assert {(one.captured, one.parts) for one in asked} == {
        (captured, parts) for captured in (False, True) for parts in (False, True)
    }
    assert math.prod(RATIOS[:1] + RATIOS[-1:]) == 25
    assert slots_of([1, 2]) == (UNIT, 2 * UNIT)
    assert plan_grid.SHARES[1] == Fraction(2, 3)
