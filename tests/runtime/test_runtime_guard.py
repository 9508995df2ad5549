"""Modules that run out of order, are left out, repeated or interrupted still read their own
weights, and the misses are exactly those that a walk over the tables predicts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.interpreter import Interpreter
from schedule import Ring, Schedule
from tests.runtime.models import (
    WIDTH,
    Block,
    Seer,
    Stack,
    assert_same_values,
    batches,
    misses,
    named_schedules,
    outputs,
    picture,
    same,
    stack,
    walk_in_order,
    wrong,
)

SIZES = [(1, 1), (3, 1), (3, 2), (3, 4), (5, 2), (5, 3), (6, 4)]
POLICIES = [schedule for size in SIZES for schedule in named_schedules(Ring(*size))]
FEW = [schedule for schedule in POLICIES if schedule.ring in {Ring(3, 2), Ring(5, 3), Ring(3, 4)}]


def call(schedule: Schedule, order: Sequence[int], **options: str) -> tuple[list[int], Offloaded]:
    """Run the modules in this order; the positions at which one saw foreign weights."""
    log: list[tuple[Seer, float]] = []
    layers = [Seer(log) for _ in range(schedule.ring.modules)]
    with (
        torch.no_grad(),
        runtime.offload(layers, slots=schedule.ring.slots, policy=schedule, **options) as offloaded,
    ):
        for index in order:
            layers[index](torch.zeros(1))
    assert [seer for seer, _ in log] == [layers[index] for index in order]
    return wrong(log), offloaded


# ---- orders


def orders(modules: int) -> dict[str, list[int]]:
    """Ways to run the modules other than again and again from first to last."""
    ring = list(range(modules))
    middle = modules // 2
    return {
        "in order": ring * 3,
        "reversed": ring[::-1] * 3,
        "there and back": (ring + ring[::-1]) * 2,
        "each twice": [i for i in ring for _ in range(2)] * 2,
        "even ones only": ring[::2] * 3,
        "one left out": (ring[:middle] + ring[middle + 1 :] + ring) * 2,
        "one repeated": (ring[: middle + 1] + ring[middle:]) * 3,
        "one alone": [middle] * 4 + ring + [middle] * 4 + ring,
        "every pass shorter": [i for end in range(modules, -1, -1) for i in ring[:end]],
        "every pass longer": [i for end in range(modules + 1) for i in ring[:end]],
        "no order": [(i * i * 7 + i // 3) % modules for i in range(4 * modules)],
    }


@pytest.mark.parametrize("name", orders(1))
def test_any_order_reads_the_right_weights_and_misses_as_predicted(name: str) -> None:
    seen = 0
    for schedule in POLICIES:
        modules = schedule.ring.modules
        order = orders(modules)[name]
        found, offloaded = call(schedule, order)
        report = offloaded.report()
        assert not found, (schedule, order)
        assert report.misses == misses(schedule, order), (schedule, order)
        assert report.runs == len(order)
        scheduled = sum(
            len(enter) + len(schedule.before[step]) + len(schedule.after[step])
            for step, enter in walk_in_order(schedule, order)
        )
        assert report.copies == report.misses + scheduled
        seen += report.misses
    assert (seen == 0) == (name == "in order")


def test_without_the_guard_these_orders_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interpreter, "holds", lambda *_: True)
    for name in orders(1):
        harmed = sum(
            bool(call(schedule, orders(schedule.ring.modules)[name])[0]) for schedule in FEW
        )
        assert (harmed == 0) == (name == "in order"), name


@pytest.mark.parametrize("stop", range(1, 6))
def test_a_pass_that_stops_early_costs_the_next_one_no_more_misses_than_slots(stop: int) -> None:
    for schedule in POLICIES:
        ring = schedule.ring
        if ring.modules == 5:
            order = [*range(stop), *range(5), *range(5)]
            found, offloaded = call(schedule, order)
            assert not found
            assert offloaded.report().misses <= ring.slots
            # What a miss repaired stays so: after a whole pass no module is missed.
            assert misses(schedule, order) == misses(schedule, order[:-5])


# ---- what a model does with its layers


class Early(Stack):
    """Leaves after ``stop`` layers."""

    stop = 99

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[: self.stop]:
            x = layer(x)
        return self.head(x)


class Failing(Block):
    """Raises ``error`` once, after it computed, if there is one."""

    error: BaseException | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        error, self.error = self.error, None
        if error is not None:
            raise error
        return x


def of(kind: Callable[[list[nn.Module]], Stack], layer: type[Block], modules: int) -> Stack:
    torch.manual_seed(0)
    return kind([layer() for _ in range(modules)])


def test_leaving_early_and_going_further_is_right() -> None:
    for schedule in FEW:
        ring = schedule.ring
        model = of(Early, Block, ring.modules)
        plain = copy.deepcopy(model)
        with runtime.offload(model, slots=ring.slots, policy=schedule):
            for stop in (99, 2, 99, 1, 1, 3, 0, 99):
                model.stop = plain.stop = stop
                assert same(outputs(model, batches(1)), outputs(plain, batches(1)))


def test_a_module_called_outside_of_the_model_is_right() -> None:
    for schedule in FEW:
        ring = schedule.ring
        model = stack(ring.modules)
        plain = copy.deepcopy(model)
        x = torch.randn(2, WIDTH)
        with torch.no_grad(), runtime.offload(model, slots=ring.slots, policy=schedule):
            for index in range(ring.modules):
                assert torch.equal(model(x), plain(x))
                assert torch.equal(model.layers[index](x), plain.layers[index](x))
                assert torch.equal(model.layers[index].up(x), plain.layers[index].up(x))
            assert torch.equal(model(x), plain(x))


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("schedule", FEW, ids=lambda s: f"{s.policy}-{s.ring.slots}")
def test_after_an_exception_in_any_module_everything_is_right(
    schedule: Schedule, kind: type[BaseException]
) -> None:
    """state_dict too, and its tensors are nobody's slot."""
    ring = schedule.ring
    model = of(Stack, Failing, ring.modules)
    before = picture(model).values
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=ring.slots, policy=schedule) as offloaded:
        for index in range(ring.modules):
            model.layers[index].error = kind("planned")
            with pytest.raises(kind, match="planned"):
                outputs(model, batches(1))
            saved = model.state_dict()
            alone = model.layers[index].up.state_dict()
            assert_same_values(saved, before)
            assert_same_values(seen_from(model, (index + 1) % ring.modules), before)
            assert same(outputs(model, batches(2)), wanted)
            assert_same_values(saved, before)
            for name, value in alone.items():
                assert torch.equal(value, saved[f"layers.{index}.up.{name}"])
        # An interrupted pass, and a module on its own: either spoils each slot at most once.
        assert offloaded.report().misses <= 2 * ring.modules * ring.slots


def seen_from(model: Stack, index: int) -> dict[str, torch.Tensor]:
    """The state_dict as it is while that layer runs."""
    values: list[dict[str, torch.Tensor]] = []
    layer = model.layers[index]
    handle = layer.up.register_forward_hook(lambda *_: values.append(picture(model).values))
    with torch.no_grad():
        layer(torch.zeros(1, WIDTH))
    handle.remove()
    return values[0]


def test_an_exception_caught_by_the_model_is_right() -> None:
    """The model retries the layer."""

    class Stubborn(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                try:
                    x = layer(x)
                except ValueError:
                    x = layer(x)
            return x

    for schedule in FEW:
        ring = schedule.ring
        model = of(Stubborn, Failing, ring.modules)
        wanted = outputs(copy.deepcopy(model), batches(1))
        with runtime.offload(model, slots=ring.slots, policy=schedule):
            for layer in model.layers:
                layer.error = ValueError("planned")
                assert same(outputs(model, batches(1)), wanted)


# ---- nothing is left


def test_hooks_are_gone_after_close_and_the_model_is_plain() -> None:
    model = stack(5)
    before = picture(model)
    with runtime.offload(model, slots=2):
        assert picture(model).hooks > before.hooks
        outputs(model, batches(2))
    assert picture(model).hooks == before.hooks == 0
    assert same(outputs(model, batches(2)), outputs(stack(5), batches(2)))
