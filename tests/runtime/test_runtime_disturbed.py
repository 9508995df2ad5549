"""After any disturbance passes in order miss at most one module a slot: the first that runs from
it. A disturbance is whatever lets a slot hold something else than the schedule says: modules that
run in another order, a pass cut short at any moment, a module called by itself, changed weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import nn

import runtime
from proofs import strategies
from runtime import Offloaded
from runtime.interpreter import Interpreter
from schedule import Ring, Schedule, policies
from tests.runtime.models import WIDTH, Seer, Walked, batches, before_run, named_schedules, wrong
from tests.runtime.threads import in_thread

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=40)
X = batches(1)[0]
ABANDONS = (KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit)
"""torch runs no hook after a module that raised one of these."""


class Raising(Seer):
    """Raises once what it is told, after it saw its number; or runs something there, once."""

    action: Callable[[], object] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        action, self.action = self.action, None
        if action is not None:
            action()
            super().forward(x)  # what it sees when it resumes
        return x


def throw(kind: type[BaseException]) -> None:
    raise kind


def expect(kind: type[BaseException], function: Callable[[], object]) -> None:
    """The function, which raises that."""
    with pytest.raises(kind):
        function()


def disturbance(model: Walked, it: Offloaded, data: st.DataObject) -> Callable[[], object]:
    """Something that happens to the model between or in its passes."""
    ring = range(len(model.layers))
    order = data.draw(strategies.orders(len(ring), max_passes=1))[0].modules
    layer = model.layers[data.draw(st.sampled_from(ring))]
    run = partial(model, X, order)
    kind = data.draw(st.sampled_from(["order", "thread", "nested", "update", "refresh", *ABANDONS]))
    match kind:
        case "order":
            return run
        case "thread":
            return partial(in_thread, run)
        case "nested":
            layer.action = run
            return partial(layer, X)
        case "update":
            return partial(layer.weight.add_, 0)
        case "refresh":
            return it.refresh
        case type():
            layer.action = partial(throw, kind)
            return partial(expect, kind, partial(layer, X))
    raise AssertionError(kind)


def misses_of_clean_passes(drawn: Schedule, data: st.DataObject) -> list[int]:
    """After some disturbances, pass by pass, until every slot ran once, and one pass more."""
    log: list[tuple[Seer, float]] = []
    model = Walked([Raising(log) for _ in range(drawn.ring.modules)])
    passes = -(-drawn.ring.slots // drawn.ring.modules) + drawn.period + 1
    layers, found = list(model.layers), []
    with (
        torch.no_grad(),
        runtime.offload(model, layers, slots=drawn.ring.slots, policy=drawn) as it,
    ):
        for _ in range(data.draw(st.integers(1, 3))):
            disturbance(model, it, data)()
        for _ in range(passes):
            before = it.report().misses
            model(X, range(drawn.ring.modules))
            found.append(it.report().misses - before)
        assert it.report().copies > 0 or not drawn.copies
    assert wrong(log) == []
    return found


DRAWN = given(strategies.safe_schedules(), st.data())


def bounded(drawn: strategies.LabelledSchedule, data: st.DataObject) -> None:
    missed = misses_of_clean_passes(drawn.schedule, data)
    assert sum(missed) <= len(set(drawn.schedule.slot_of))
    assert missed[-1] == 0


test_after_any_disturbance_a_slot_misses_at_most_once = FIXED(DRAWN(bounded))


def test_unless_what_was_reloaded_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: every arrival is a miss."""
    monkeypatch.setattr(Interpreter, "holds", lambda *_: False)
    with pytest.raises(AssertionError, match="assert "):
        settings(FIXED, phases=[Phase.generate])(DRAWN(bounded))()


# ---- a pass cut short, at every place

PLACES = ("before", "arrived", "begun", "inside", "ended", "departed")
"""Of a module, where an exception comes: in a hook before ours; after ours; before, in and after
what runs inside it; in a hook after ours."""


class Parts(nn.Module):
    """Two parts, between which something may be called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.calls: dict[str, Callable[[], object]] = {}

    def at(self, place: str) -> None:
        call = self.calls.pop(place, None)
        if call is not None:
            call()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.at("begun")
        x = torch.tanh(self.first(x))
        self.at("ended")
        return torch.tanh(self.second(x))


def parts(modules: int) -> tuple[nn.Sequential, nn.Sequential]:
    """A model and its twin."""
    torch.manual_seed(0)
    one, twin = (nn.Sequential(*(Parts() for _ in range(modules))) for _ in range(2))
    twin.load_state_dict(one.state_dict())
    for layer in one:
        before_run(layer, partial(layer.at, "before"))
        before_run(layer.second, partial(layer.at, "inside"))
    return one, twin


def missed_in_order(schedule: Schedule, it: Offloaded, at: int) -> int:
    """How many a pass of this number would miss, by what the slots hold now."""
    holds = {slot: last.module for slot, last in enumerate(it._interpreter.last)}
    holds.update(schedule.enter[at])
    missed = 0
    for module in range(schedule.ring.modules):
        step = at * schedule.ring.modules + module
        holds.update(schedule.before[step])
        missed += holds.get(schedule.slot_of[step]) != module
        holds[schedule.slot_of[step]] = module
        holds.update(schedule.after[step])
    return missed


@torch.no_grad()
def cut_short(schedule: Schedule, kind: type[BaseException]) -> int:
    """Cut a pass short at every place of every module, with a whole one after each; all that is
    missed then."""
    model, twin = parts(3)
    expected, values, missed = twin(X), twin.state_dict(), 0
    shown, layers = dict(model.named_parameters()), list(model)
    with runtime.offload(model, layers, slots=schedule.ring.slots, policy=schedule) as it:
        for layer in layers:
            before_run(layer, partial(layer.at, "arrived"))
            layer.register_forward_hook(lambda layer, *_: layer.at("departed"))
        for number, (layer, place) in enumerate((a, b) for a in layers for b in PLACES):
            layer.calls[place] = partial(throw, kind)
            with pytest.raises(kind):
                model(X)
            where = (schedule.policy, number // len(PLACES), place)
            assert all(values[n].equal(v) for n, v in model.state_dict().items()), where
            assert all(p is shown[n] for n, p in model.named_parameters()), where
            before = it.report().misses
            predicted = missed_in_order(schedule, it, (2 * number + 1) % schedule.period)
            assert torch.equal(model(X), expected), where
            assert it.report().misses - before == predicted <= schedule.ring.slots, where
            missed += predicted
        assert it.report().copies > 0
    return missed


@pytest.mark.parametrize("kind", ABANDONS)
def test_after_a_pass_that_is_cut_short_anywhere_the_next_one_is_right(
    kind: type[BaseException],
) -> None:
    assert sum(cut_short(schedule, kind) for schedule in named_schedules(Ring(3, 2))) > 50


@pytest.mark.parametrize(
    ("function", "instead"),
    [
        ("runtime.hooks.alive", lambda calls, *_: list(calls)),
        ("runtime.hooks.Interpreter.holds", lambda *_: True),
    ],
    ids=["a run ends by its hook alone", "the guard is off"],
)
def test_unless(function: str, instead: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: the slot is shown in the state dict; and the next pass reads foreign weights."""
    monkeypatch.setattr(function, instead)
    with pytest.raises(AssertionError, match="chain"):
        cut_short(policies.chain(Ring(3, 2)), KeyboardInterrupt)
