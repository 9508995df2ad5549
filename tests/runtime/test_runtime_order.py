"""The order of arrival in the first complete pass is recorded; another order than that of the
layers, and modules that did not run, are said once."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from schedule.errors import ModuleNotResident
from tests.runtime.models import WIDTH, Block, Stack, batches, hook_count, misses, outputs, same

X = batches(1)[0]


class Ordered(Stack):
    """Runs its layers in an order that can be changed; fails after one of them if told so."""

    order: Sequence[int] = ()
    fails_after: int | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in self.order:
            x = self.layers[index](x)
            if index == self.fails_after:
                raise ArithmeticError
        return self.head(x)


def ordered(*order: int) -> Ordered:
    torch.manual_seed(0)
    model = Ordered(Block() for _ in range(5)).eval()
    model.order = order
    return model


def run(model: nn.Module, x: torch.Tensor = X) -> None:
    with torch.no_grad():
        model(x)


def names(*order: int) -> tuple[str, ...]:
    return tuple(f"layers.{index}" for index in order)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_the_right_order_is_recorded_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    model = ordered(0, 1, 1, 2, 3, 4)  # a module that runs twice is in the list once
    with runtime.offload(model, slots=2) as offloaded:
        assert offloaded.recorded_order() is None
        run(model)
        assert offloaded.recorded_order() == names(0, 1, 2, 3, 4)
    assert said(caplog) == []


def test_another_order_is_said_once_with_what_it_costs(caplog: pytest.LogCaptureFixture) -> None:
    """And with the corrected list, which then misses nothing."""
    order = (0, 3, 1, 2, 4)
    model = ordered(*order)
    expected = outputs(copy.deepcopy(model), [X])
    with runtime.offload(model, "layers.*", slots=2, policy="chain") as offloaded:
        for _ in range(3):
            assert same(outputs(model, [X]), expected)
        model.order = (4, 3, 2, 1, 0)  # what comes later does not count
        run(model)
        corrected, first = offloaded.recorded_order(), misses(offloaded.schedule, order)
    (warning,) = said(caplog)
    assert corrected == names(*order)
    assert warning == (
        f"in the first complete pass the modules ran in another order than that of layers: "
        f"{first} miss in it; on_miss='raise' forbids them. The order was {list(names(*order))}; "
        f"offload with layers in this order"
    )
    assert first == 1
    model.order = order
    with runtime.offload(model, corrected, slots=2, policy="chain") as offloaded:
        run(model)
        assert offloaded.report().misses == 0
        assert offloaded.recorded_order() == corrected
    assert len(said(caplog)) == 1


def test_modules_that_did_not_run_are_named(caplog: pytest.LogCaptureFixture) -> None:
    model = ordered(0, 2, 4)
    with runtime.offload(model, slots=2) as offloaded:
        run(model)
        run(model)
        assert offloaded.recorded_order() == names(0, 2, 4)
    assert said(caplog) == [
        "2 of 5 modules did not run in the first complete pass; if they never do, their copies are "
        "wasted, and keep= leaves them out: ['layers.1', 'layers.3']"
    ]
    with runtime.offload(model, slots=2, keep=["layers.1", "layers.3"]) as offloaded:
        run(model)
        assert offloaded.report().misses == 0
    assert len(said(caplog)) == 1


def test_a_pass_that_raised_is_not_complete(caplog: pytest.LogCaptureFixture) -> None:
    model = ordered(0, 1, 2, 3, 4)
    with runtime.offload(model, slots=2) as offloaded:
        model.order, model.fails_after = (3, 1, 0, 2, 4), 1
        with pytest.raises(ArithmeticError):
            run(model)
        assert offloaded.recorded_order() is None
        model.order, model.fails_after = (0, 1, 2, 3, 4), None
        run(model)
        assert offloaded.recorded_order() == names(0, 1, 2, 3, 4)
    assert said(caplog) == []


def test_its_misses_are_those_of_the_complete_pass(caplog: pytest.LogCaptureFixture) -> None:
    model = ordered(4, 3, 2, 1, 0)
    with runtime.offload(model, "layers.*", slots=2, policy="chain") as offloaded:
        model.fails_after = 1
        with pytest.raises(ArithmeticError):
            run(model)
        before, model.fails_after = offloaded.report().misses, None
        run(model)
        missed = offloaded.report().misses - before
    assert before > 0
    assert f": {missed} misses in it;" in said(caplog)[0]


def test_an_encoder_that_runs_before_the_root_is_called_is_part_of_the_pass(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = ordered(2, 3, 4)
    with runtime.offload(model, slots=2) as offloaded:
        run(model.layers[0])
        run(model.layers[1])
        assert offloaded.recorded_order() is None
        run(model)
        assert offloaded.recorded_order() == names(0, 1, 2, 3, 4)
    assert said(caplog) == []


def test_without_calls_of_the_root_a_pass_is_complete_when_all_have_arrived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    layers = ordered().layers
    with runtime.offload(layers, slots=2, policy="chain") as offloaded:
        for index in (1, 0, 0, 4, 3):
            run(layers[index])
        assert offloaded.recorded_order() is None
        run(layers[2])
        assert offloaded.recorded_order() == tuple(f"modules[{i}]" for i in (1, 0, 4, 3, 2))
        missed = offloaded.report().misses
        run(layers[1])
    (warning,) = said(caplog)
    assert f": {missed} misses in it;" in warning


def test_a_root_that_runs_no_module_completes_nothing() -> None:
    model = ordered()
    with runtime.offload(model, slots=2) as offloaded:
        run(model)
        assert offloaded.recorded_order() is None


def test_with_the_guard_off_the_order_is_a_danger(caplog: pytest.LogCaptureFixture) -> None:
    model = ordered(4, 3, 2, 1, 0)
    with offload_without_proof(model, slots=2, policy="chain", output_may_be_wrong=True):
        run(model)
    assert "layers: and the guard is off: its output may be wrong. The order" in said(caplog)[-1]


def test_the_first_miss_is_an_error_where_misses_are_forbidden() -> None:
    """Then no pass completes in another order."""
    model = ordered(4, 3, 2, 1, 0)
    with runtime.offload(model, slots=2, policy="chain", on_miss="raise") as offloaded:
        with pytest.raises(ModuleNotResident):
            run(model)
        assert offloaded.recorded_order() is None


def test_once_recorded_nothing_of_it_is_left_in_the_hot_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ordered(0, 1, 2, 3, 4)
    with runtime.offload(model, slots=2) as offloaded:
        run(model)
        assert hook_count(nn.ModuleList([model.embed, model.head])) == 0
        assert not model._forward_hooks
        assert not model._forward_pre_hooks
        recorder = type(offloaded._hooks.recorder)
        for name in ("arrive", "_begin", "_end", "_finish"):
            monkeypatch.delattr(recorder, name)
        run(model, torch.zeros(1, WIDTH))
        assert offloaded.report().misses == 0
    with runtime.offload(model, slots=2), pytest.raises(AttributeError):
        run(model)  # before it is recorded they are needed
