"""Given bytes, a model runs by the plan: what stays, what is copied, and what the budget holds."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

import runtime
from schedule import costsfile
from schedule.errors import CostsError, OffloadError
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    assert_unchanged,
    batches,
    outputs,
    picture,
    same,
    stack,
)
from tests.runtime.plans import assert_right, costs_of, plan_by_hand

# ---- the real planner


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("bare", [False, True], ids=["model", "bare list"])
def test_it_is_right_and_within_the_budget(share: float, bare: bool) -> None:
    model = stack(7, uneven=True)
    plain = copy.deepcopy(model)
    costs = costs_of(model.layers if bare else model)
    budget = costs.resident + int(share * sum(costs.sizes))
    with runtime.offload(model.layers if bare else model, memory=budget, costs=costs) as offloaded:
        assert offloaded.plan is not None
        assert offloaded.plan.budget == budget
        assert offloaded.plan.schedule.copies > 0
        assert_right(model, plain, offloaded)


def test_everything_fits() -> None:
    model = stack(3)
    costs = costs_of(model)
    with runtime.offload(model, memory=costs.whole, costs=costs) as offloaded:
        outputs(model, batches(3))
        report = offloaded.report()
    assert (report.copies, report.preloaded) == (0, 3)
    assert report.plan.startswith("the whole model fits: ")
    assert report.unsaved == "its memory is enough for the whole model"
    assert "nothing: its memory is enough for the whole model" in str(report)


def test_a_budget_that_is_too_small_names_the_smallest() -> None:
    model = stack(7, uneven=True)
    before, costs = picture(model), costs_of(model)
    least = costs.resident + max(costs.sizes)
    largest = max(costs.modules, key=lambda module: module.size).name
    with pytest.raises(CostsError, match=f"{largest} needs .* the smallest that works is {least}"):
        runtime.offload(model, memory=least - 1, costs=costs)
    assert_unchanged(model, before)
    with runtime.offload(model, memory=least, costs=costs) as offloaded:
        assert offloaded.report().bytes_device <= least


def test_costs_come_from_a_file(tmp_path: Path) -> None:
    model = stack(4)
    costs = costs_of(model)
    file = tmp_path / "costs.json"
    file.write_text(costsfile.text(costs))
    with runtime.offload(model, memory="6 KB", costs=file) as offloaded:
        assert offloaded.plan is not None
        assert offloaded.plan.costs == costs
        assert offloaded.plan.budget == 6000
    file.write_text(json.dumps({"costs": 2}))
    with pytest.raises(CostsError, match=r"costs\.json: costs: .*, where 1 is known"):
        runtime.offload(model, memory="6 KB", costs=str(file))


def test_without_costs_they_are_estimated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("runtime.link.LARGEST", 1 << 16)
    model = stack(4)
    plain = copy.deepcopy(model)
    with (
        caplog.at_level(logging.INFO, "ringproof.runtime"),
        runtime.offload(model, memory="5 KB") as offloaded,
    ):
        assert offloaded.plan is not None
        assert [one.name for one in offloaded.plan.costs.workloads] == ["decode (estimated)"]
        assert_right(model, plain, offloaded)
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "no costs are given" in text
    assert "offloaded by a plan: " in text


def test_the_log_and_the_report_say_the_plan(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan_by_hand(monkeypatch, 3, {1: ("up.weight",), 2: ("up.weight", "up.bias")})
    model = stack(5)
    costs = costs_of(model)
    with (
        caplog.at_level(logging.INFO, "ringproof.runtime"),
        runtime.offload(model, memory="8 KB", costs=costs) as offloaded,
    ):
        report = offloaded.report()
    used = 2 * WIDTH * (WIDTH + 1) * 4 + WIDTH * 4 + 3 * 256 + 1280 + 1280 + 1280
    assert report.plan == (
        f"{used / 1e3:.1f} KB of 8.0 KB on the device, {(8000 - used) / 1e3:.1f} KB unused; a pass "
        f"in this memory, predicted: decode 5.000 ms, at least 5.000 ms; kept are 1 module "
        f"whole and 3 parts of 2 modules"
    )
    assert str(report).startswith(f"plan       {report.plan}\n")
    assert json.loads(report.json())["plan"] == report.plan
    assert f"offloaded by a plan: {report.plan}" in caplog.text
    with runtime.offload(model, slots=3) as offloaded:
        assert offloaded.plan is None
        assert offloaded.report().plan == ""


# ---- the order


class Backwards(Stack):
    """Runs its layers from the last to the first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in reversed(self.layers):
            x = layer(x)
        return x


def backwards() -> Backwards:
    torch.manual_seed(0)
    return Backwards([Block(WIDTH + 8 * i) for i in range(5)]).eval()


def test_a_plan_is_for_its_order(caplog: pytest.LogCaptureFixture) -> None:
    model, plain = backwards(), backwards()
    costs = costs_of(model)
    with runtime.offload(model, memory=costs.whole // 2, costs=costs) as offloaded:
        assert same(outputs(model, batches(3)), outputs(plain, batches(3)))
        assert offloaded.selection.names == tuple(f"layers.{i}" for i in range(5))
        assert offloaded.report().misses > 0
    assert "another order than that of layers" in caplog.text


def test_found_layers_take_the_order_of_the_costs(caplog: pytest.LogCaptureFixture) -> None:
    model, plain = backwards(), backwards()
    costs = costs_of(model, list(reversed(model.layers)))
    with runtime.offload(model, memory=costs.whole // 2, costs=costs) as offloaded:
        assert offloaded.selection.names == tuple(f"layers.{i}" for i in reversed(range(5)))
        assert_right(model, plain, offloaded)
    assert caplog.records == []
    with pytest.raises(CostsError, match=r"modules\[0\].name: layers.4, where .* has layers.0"):
        runtime.offload(model, list(model.layers), memory=costs.whole // 2, costs=costs)


def test_a_profile_has_the_order_in_which_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.link.LARGEST", 1 << 16)
    model, plain = backwards(), backwards()
    costs = runtime.profile(model, inputs={"decode": (batches(1)[0],)})
    assert [one.name for one in costs.modules] == [f"layers.{i}" for i in reversed(range(5))]
    with runtime.offload(model, memory=costs.whole // 2, costs=costs) as offloaded:
        assert_right(model, plain, offloaded)


def test_static_has_one_slot_a_module() -> None:
    model = stack(5, uneven=True)
    plain, costs = copy.deepcopy(model), costs_of(model)
    budget = costs.resident + sum(costs.sizes) // 2
    with runtime.offload(model, memory=budget, costs=costs, static=True) as offloaded:
        assert offloaded.plan is not None
        assert offloaded.plan.captured
        assert offloaded.plan.schedule.period == 1
        assert_right(model, plain, offloaded)


def test_a_plan_of_several_passes_is_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_by_hand(monkeypatch, 2, {}, "rotating")
    model = stack(3)
    with (
        runtime.offload(model, memory="1 MB", costs=costs_of(model)) as offloaded,
        pytest.raises(OffloadError, match=r"repeats after 2 passes.* static=True"),
    ):
        offloaded.capture(lambda: model(batches(1)[0]))


# ---- bad input


@pytest.mark.parametrize(
    "options",
    [{"slots": 2}, {"policy": "balanced"}, {"certificate": "ring.json"}],
    ids=lambda one: next(iter(one)),
)
def test_memory_goes_alone(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(OffloadError, match=f"'1 GB' decides about .*; leave {name} out"):
        runtime.offload(stack(3), memory="1 GB", **options)


def test_bad_arguments() -> None:
    model = stack(3)
    before = picture(model)
    with pytest.raises(OffloadError, match="costs go with memory"):
        runtime.offload(model, slots=2, costs=costs_of(model))
    with pytest.raises(OffloadError, match="costs is a dict"):
        runtime.offload(model, memory="1 MB", costs={})  # type: ignore[arg-type]
    with pytest.raises(OffloadError, match="memory='much' is no size"):
        runtime.offload(model, memory="much")
    with pytest.raises(CostsError, match="can't be read"):
        runtime.offload(model, memory="1 MB", costs="no such file")
    with pytest.raises(CostsError, match=r"modules\[3\]: layers.3, which no module here has"):
        runtime.offload(model, memory="1 MB", costs=costs_of(stack(4)))
    assert_unchanged(model, before)


def test_what_the_user_keeps_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.link.LARGEST", 1 << 16)
    model = stack(4)
    with pytest.raises(CostsError, match=r"modules\[0\].name: layers.0, where"):
        runtime.offload(model, memory="1 MB", costs=costs_of(model), keep="layers.0")
    costs = runtime.profile(model, keep="layers.0")
    assert costs.resident == costs_of(model).resident + 2 * WIDTH * (WIDTH + 1) * 4
    with runtime.offload(model, memory="1 MB", costs=costs, keep="layers.0") as offloaded:
        assert offloaded.selection.names == ("layers.1", "layers.2", "layers.3")
