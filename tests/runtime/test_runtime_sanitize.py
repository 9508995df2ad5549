"""The sanitizer raises on any operator that touches a slot outside its owner's run, and on none of
an ordinary model.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from schedule import OffloadError
from tests.runtime.architectures import ARCHITECTURES, built, forward, fresh, to_offload
from tests.runtime.models import Block, Stack, batches, outputs, same, stack
from tests.runtime.sanitized import Sanitized
from tests.runtime.weights import Quantised, Tables, made


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is not seen by the hooks."""
    monkeypatch.setattr("runtime.outliving.who_keeps", lambda *_: None)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_models_run_under_it(name: str) -> None:
    wanted, model = forward(name, built(name)), fresh(name)
    with runtime.offload(model, to_offload(name, model), slots=2) as offloaded:
        for _ in range(2):
            with runtime.sanitize(offloaded):
                assert same(forward(name, model), wanted)
        assert offloaded.report().copies > 0


@pytest.mark.parametrize("kind", [Quantised, Tables])
def test_weights_of_every_kind_do(kind: type[nn.Module]) -> None:
    model, plain = made(kind), made(kind)
    with runtime.offload(model, slots=1) as offloaded, runtime.sanitize(offloaded):
        assert same(outputs(model, batches(3)), outputs(plain, batches(3)))


class Inner(Block):
    """Runs a whole pass inside its own run, with a view in hand."""

    whole: list[nn.Module] = []  # noqa: RUF012
    deep = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.up.weight.t()
        if self.whole and not Inner.deep:
            Inner.deep = True
            for layer in self.whole:
                x = layer(x)
            Inner.deep = False
        return super().forward(x) + (x @ weight).sum()


def nested() -> list[Inner]:
    torch.manual_seed(0)
    layers = [Inner() for _ in range(3)]
    layers[1].whole = list(layers)
    return layers


def test_a_pass_inside_a_run_does() -> None:
    model, plain = Stack(nested()), Stack(nested())
    with runtime.offload(model, slots=2) as offloaded, runtime.sanitize(offloaded):
        assert same(outputs(model, batches(2)), outputs(plain, batches(2)))


class Giving(Block):
    """Gives a view of its weight away, and lends it to what runs inside it."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.given, self.inside = given, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.given["view"] = self.up.weight.t()
        if self.inside is not None:
            x = self.inside(x)
        return super().forward(x)


class Reading(Block):
    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.given = given

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (x @ self.given["view"]).mean()


READ = r"^aten\.mm\.default touches slot \d through a weight of 0, outside its run"


@pytest.mark.usefixtures("blind")
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_a_view_that_is_read_in_another_run_is_an_error(slots: int) -> None:
    given: dict[str, Any] = {}
    model = nn.Sequential(Giving(given), Reading(given), Block()).requires_grad_(False)
    with runtime.offload(model, list(model), slots=slots) as offloaded:
        model(batches(1)[0])  # without it nothing is said
        with runtime.sanitize(offloaded), pytest.raises(OffloadError, match=READ):
            model(batches(1)[0])


@pytest.mark.usefixtures("blind")
def test_where_a_whole_test_runs_under_it_as_those_of_models_do(sanitized: Sanitized) -> None:
    given: dict[str, Any] = {}
    model = nn.Sequential(Giving(given), Reading(given), Block()).requires_grad_(False)
    with runtime.offload(model, list(model), slots=2):
        before = sanitized.looked
        with pytest.raises(OffloadError, match=READ):
            model(batches(1)[0])
        assert sanitized.looked > before


@pytest.mark.usefixtures("blind")
def test_so_is_a_view_that_is_read_or_written_outside() -> None:
    given: dict[str, Any] = {}
    model = nn.Sequential(Giving(given), Block()).requires_grad_(False)
    with runtime.offload(model, list(model), slots=1) as offloaded:
        model(batches(1)[0])
        with runtime.sanitize(offloaded):
            with pytest.raises(OffloadError, match=READ):
                batches(1)[0] @ given["view"]
            with pytest.raises(OffloadError, match=r"^aten\.zero_\.default touches slot 0"):
                given["view"][1:].zero_()
            model[0].up.weight.add_(1)  # the host master
            model[0].up.weight.sub_(1)
        model[1].up.weight = nn.Parameter(torch.ones(8, 8), requires_grad=False)
        offloaded.refresh()
        with runtime.sanitize(offloaded), pytest.raises(OffloadError, match="before a refresh"):
            given["view"].sum()


@pytest.mark.usefixtures("blind")
def test_a_run_whose_slot_an_inner_one_has_may_not_read_it_meanwhile() -> None:
    given: dict[str, Any] = {}
    outer, inner = Giving(given), Reading(given)
    model = nn.ModuleList([outer, inner]).requires_grad_(False)
    with runtime.offload(model, slots=1) as offloaded, runtime.sanitize(offloaded):
        outer(batches(1)[0])
        outer.inside = lambda x: inner(x)
        with pytest.raises(
            OffloadError, match=r"of modules\[0\], while the slot holds modules\[1\]"
        ):
            outer(batches(1)[0])


def test_the_old_rule_is_caught_where_it_is_wrong() -> None:
    model = stack(3).requires_grad_(False)
    with (
        offload_without_proof(
            model, slots=2, policy="modular", output_may_be_wrong=True, guard=False
        ) as offloaded,
        runtime.sanitize(offloaded),
    ):
        pattern = r"^aten\.addmm\.default touches slot 0 through a weight of layers\.2"
        with pytest.raises(OffloadError, match=pattern):
            outputs(model, batches(2))


def test_another_offload_is_none_of_its_business() -> None:
    one, other = stack(3), stack(3, seed=1)
    wanted = outputs(stack(3, seed=1), batches(2))
    with (
        runtime.offload(one, slots=1) as first,
        runtime.offload(other, slots=1),
        runtime.sanitize(first),
    ):
        assert same(outputs(other, batches(2)), wanted)


def test_after_closing_nothing_is_checked() -> None:
    model = stack(2)
    offloaded = runtime.offload(model, slots=1)
    with runtime.sanitize(offloaded):
        offloaded.close()
        assert same(outputs(model, batches(1)), outputs(stack(2), batches(1)))
