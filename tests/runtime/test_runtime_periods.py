"""Schedules that repeat after several passes, and refills at every boundary, executed.

Outputs, misses and copies are those that a walk over the tables predicts; whatever pass of the
period the hooks take the model to be at, every module reads its own weights.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch

import runtime
from schedule import ModuleNotResident, Policy, Ring, Schedule, policies
from schedule.policy import NAMED
from tests.runtime.models import (
    Block,
    Seer,
    Stack,
    batches,
    copies_in,
    misses,
    outputs,
    same,
    stack,
    wrong,
)

NEW = [policies.rotating, policies.restart, policies.one_ahead, policies.on_demand]
SIZES = [(1, 1), (1, 3), (3, 2), (2, 3), (4, 2), (5, 3), (3, 4), (6, 4)]
SCHEDULES = [
    policy(Ring(*size)) for policy in NEW for size in SIZES if size[1] >= policy.least_slots
]
LONG = [schedule for schedule in SCHEDULES if schedule.period > 1]


def named(schedule: Schedule) -> str:
    return f"{schedule.policy}-{schedule.ring.modules}x{schedule.ring.slots}"


def test_the_periods() -> None:
    assert [(named(s), s.period) for s in LONG] == [
        ("rotating-1x3", 3),
        ("rotating-3x2", 2),
        ("rotating-2x3", 3),
        ("rotating-5x3", 3),
        ("rotating-3x4", 4),
        ("rotating-6x4", 2),
    ]


@pytest.mark.parametrize("root", [True, False], ids=["root", "list"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=named)
def test_two_periods_and_one_pass_give_the_outputs_of_the_plain_model(
    schedule: Schedule, root: bool
) -> None:
    ring, passes = schedule.ring, 2 * schedule.period + 1
    model, inputs = stack(ring.modules, uneven=True), batches(passes)
    wanted = outputs(copy.deepcopy(model), inputs)
    with runtime.offload(
        model if root else model.layers, slots=ring.slots, policy=schedule, on_miss="raise"
    ) as offloaded:
        assert same(outputs(model, inputs), wanted)
        report = offloaded.report()
    assert (report.misses, report.runs) == (0, passes * ring.modules)
    assert report.preloaded == len(schedule.preload)
    assert report.copies == copies_in(schedule, passes)


def test_a_pass_too_far_in_the_period_would_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: a period in which the hooks never go on is no longer without misses."""
    monkeypatch.setattr("runtime.hooks.Hooks._begin_pass", lambda _: None)
    for schedule in LONG:
        model = stack(schedule.ring.modules)
        wanted = outputs(copy.deepcopy(model), batches(4))
        with runtime.offload(model, slots=schedule.ring.slots, policy=schedule) as offloaded:
            assert same(outputs(model, batches(4)), wanted)
            assert (offloaded.report().misses > 0) == bool(schedule.copies), schedule


class Early(Stack):
    """Runs the layers of ``order``."""

    order: Sequence[int] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in self.order:
            x = self.layers[index](x)
        return self.head(x)


def early(modules: int) -> Early:
    torch.manual_seed(0)
    return Early([Block() for _ in range(modules)]).eval()


ORDERS = {
    "abandoned": [[0, 1], [0, 1, 2, 3, 4], [0], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]],
    "skipped": [[0, 2, 4], [1, 2, 3, 4], [0, 1, 2, 3], [4], [0, 1, 2, 3, 4]],
    "backwards": [[4, 3, 2, 1, 0], [0, 1, 2, 3, 4], [4, 3, 2, 1, 0]],
    "repeated": [[0, 0, 1, 2, 2, 3, 4], [0, 1, 2, 3, 4], [3, 3, 3], [0, 1, 2, 3, 4]],
    "an empty pass": [[], [0, 1, 2, 3, 4], [], [0, 1, 2, 3, 4]],
}


def missed_with_root(schedule: Schedule, orders: Sequence[Sequence[int]]) -> int:
    """The misses that the tables predict, when a pass begins with each call of the root."""
    holds, missed = dict(schedule.preload), 0
    for number, order in enumerate(orders):
        now = number % schedule.period
        holds.update(schedule.enter[now])
        for module in order:
            step = now * schedule.ring.modules + module
            holds.update(schedule.before[step])
            missed += holds.get(schedule.slot_of[step]) != module
            holds[schedule.slot_of[step]] = module
            holds.update(schedule.after[step])
    return missed


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("slots", [2, 3, 4])
@pytest.mark.parametrize("policy", NEW, ids=lambda policy: policy.name)
def test_skipped_and_abandoned_passes_are_right_and_their_misses_counted(
    policy: Policy, slots: int, name: str
) -> None:
    schedule = policy(Ring(5, slots))
    model, plain = early(5), early(5)
    with runtime.offload(model, "layers.*", slots=slots, policy=schedule) as offloaded:
        for order in ORDERS[name]:
            model.order = plain.order = order
            assert same(outputs(model, batches(1)), outputs(plain, batches(1))), order
        assert offloaded.report().misses == missed_with_root(schedule, ORDERS[name])


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("schedule", LONG, ids=named)
def test_without_the_root_too(schedule: Schedule, name: str) -> None:
    log: list[tuple[Seer, float]] = []
    layers = [Seer(log) for _ in range(schedule.ring.modules)]
    order = [i for part in ORDERS[name] for i in part if i < len(layers)]
    with torch.no_grad(), runtime.offload(layers, slots=schedule.ring.slots, policy=schedule) as it:
        for index in order:
            layers[index](torch.zeros(1))
        assert not wrong(log)
        assert it.report().misses == misses(schedule, order)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_interrupted_pass_is_followed_by_the_next_one_of_the_period(
    kind: type[BaseException],
) -> None:
    """With the root: the next call is the next pass, and what is missed then is right again."""
    schedule = policies.rotating(Ring(5, 3))
    model, plain = stack(5), stack(5)

    def fail(*_: object) -> None:
        raise kind("planned")

    with runtime.offload(model, slots=3, policy=schedule) as offloaded:
        for index in range(5):
            handle = model.layers[index].down.register_forward_hook(fail)
            with pytest.raises(kind, match="planned"):
                outputs(model, batches(1))
            handle.remove()
            assert same(outputs(model, batches(3)), outputs(plain, batches(3)))
        assert 0 < offloaded.report().misses <= 5 * 2 * 3


def test_a_miss_may_raise_in_any_pass() -> None:
    schedule = policies.rotating(Ring(3, 2))
    model = early(3)
    with runtime.offload(model, slots=2, policy=schedule, on_miss="raise"):
        for order in ([0, 1, 2], [0, 1, 2], [0]):
            model.order = order
            outputs(model, batches(1))
        model.order = [1]  # in pass 1 from slot 0, which has module 2 for pass 0
        with pytest.raises(ModuleNotResident, match=r"\(module 1\) arrived, but its slot 0 holds"):
            outputs(model, batches(1))


class Caller(Block):
    """Calls itself once, through its hooks, in the middle of its run."""

    again = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.up(x))
        if self.again:
            self.again = False
            y = y + self(x)
        return x + self.down(y)


@pytest.mark.parametrize("root", [True, False], ids=["root", "list"])
def test_a_module_inside_its_own_run_from_another_slot(root: bool) -> None:
    """Without the root the inner run is taken for the next pass's: the outer one reads its own
    slot again, the one that it began with."""
    for modules, slots in ((1, 2), (3, 2), (5, 3)):
        torch.manual_seed(0)
        model = Stack([Caller() for _ in range(modules)]).eval()
        plain = copy.deepcopy(model)
        schedule = policies.rotating(Ring(modules, slots))
        before = copy.deepcopy(model.state_dict())
        with runtime.offload(model if root else model.layers, slots=slots, policy=schedule):
            for index in [*range(modules)] * 2:
                model.layers[index].again = plain.layers[index].again = True
                assert same(outputs(model, batches(2)), outputs(plain, batches(2)))
            assert all(torch.equal(model.state_dict()[n], before[n]) for n in before)


def test_what_a_module_writes_is_kept_in_every_slot() -> None:
    """The copies in its other slots are old then, and loaded again."""

    class Counting(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.up.bias.add_(1)
            return super().forward(x)

    for modules, slots in ((1, 3), (2, 4), (3, 2), (3, 4)):
        torch.manual_seed(0)
        model = Stack([Counting() for _ in range(modules)]).eval()
        plain = copy.deepcopy(model)
        schedule = policies.rotating(Ring(modules, slots))
        with runtime.offload(model, slots=slots, policy=schedule):
            assert same(outputs(model, batches(7)), outputs(plain, batches(7)))
            for name, value in model.state_dict().items():
                assert torch.equal(value, plain.state_dict()[name])


def test_the_named_policies_are_offered_by_name() -> None:
    for policy in NEW:
        assert NAMED[policy.name] is policy
        with runtime.offload(stack(5), slots=3, policy=policy.name) as offloaded:
            assert offloaded.schedule == policy(Ring(5, 3))
            outputs(offloaded.selection.root, batches(6))
            report = offloaded.report()
            assert report.copies_a_pass == 5
            assert report.misses == 0
