"""An interrupt at each line of the runtime, one after the other, while a pass runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
import torch
from torch import nn

import runtime
from runtime.hooks import Hooks
from schedule import OffloadError, policies
from tests.runtime.interrupt import interrupted_at

WIDTH = 4
POLICIES = [(name, 2 if name == "one_ahead" else 1 + len(name) % 2) for name in policies.NAMED]
POLICIES = [(name, slots) for name, slots in POLICIES if name != "modular"]


class Writing(nn.Linear):
    """A layer that changes its own weights as it runs, and what runs inside it."""

    inside: tuple[nn.Module, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.bias.neg_()
        for inner in self.inside:
            x = torch.tanh(inner(x))
        return super().forward(x)


def model_of(nested: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3)))
    if nested:
        model[2] = Writing(WIDTH, WIDTH)
        model[2].inside = (model[0],)
    return model


def values(model: nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for tensor in model.state_dict().values()]


def equal(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(these, those, strict=True))


def each_line(function: Callable[[], object]) -> Iterator[str]:
    """Interrupts the function at its first line of the runtime, its second, ... until it ends."""
    for number in count(1):
        where = interrupted_at(number, function)
        if where is None:
            return
        yield where


@torch.no_grad()
@pytest.mark.parametrize(("policy", "slots"), POLICIES)
def test_after_an_interrupt_at_any_line_all_is_right(policy: str, slots: int) -> None:
    x = torch.randn(2, WIDTH)
    model, plain = model_of(), model_of()
    masters, expected = values(plain), plain(x)
    with runtime.offload(list(model), slots=slots, policy=policy) as offloaded:
        places = set()
        for where in each_line(lambda: model(x)):
            places.add(where)
            assert equal(values(model), masters), where
            model[1](x)  # another module than the one that was cut short
            assert equal(values(model), masters), where
            assert torch.equal(model(x), expected), where
        assert len(places) > 40  # else nothing was interrupted
        assert offloaded.report().copies > 0


@torch.no_grad()
def test_so_it_is_where_modules_run_inside_others_and_write() -> None:
    """What the interrupted module wrote is kept or lost as it was when it stopped: the biases of
    a layer and of its twin differ by their sign alone, and the output by the bias used."""
    x = torch.randn(2, WIDTH)
    model, plain = model_of(nested=True), model_of(nested=True)
    with runtime.offload(list(model), slots=2, policy="balanced"):
        for where in each_line(lambda: model(x)):
            for ours, theirs in zip(values(model), values(plain), strict=True):
                assert torch.equal(ours.abs(), theirs.abs()), where
            plain.load_state_dict(model.state_dict())
            assert torch.equal(model(x), plain(x)), where
            assert equal(values(model), values(plain)), where


@torch.no_grad()
@pytest.mark.parametrize("nested", [False, True])
def test_close_after_an_interrupt_gives_the_model_back(nested: bool) -> None:
    x = torch.randn(2, WIDTH)
    model = model_of(nested)
    parameters, before = list(model.parameters()), [p.abs() for p in model.parameters()]

    def closed_by_the_user(stop: int) -> str | None:
        with runtime.offload(list(model), slots=2, policy="balanced"):
            where = interrupted_at(stop, lambda: model(x))
            model[1](x)
        return where

    for stop in count(1):
        where = closed_by_the_user(stop)
        assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True)), where
        assert equal([p.abs() for p in model.parameters()], before), where
        if where is None:
            break
    assert stop > 100


def test_a_run_that_is_forgotten_before_it_is_unbound_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twin: with the two lines of the end of a run swapped the first test fails."""

    def ended(hooks: Hooks) -> object:
        step, _ = hooks._running.pop()
        hooks.interpreter.unbind(step)
        return step

    monkeypatch.setattr(Hooks, "_ended", ended)
    x = torch.randn(2, WIDTH)
    model, plain = model_of(), model_of()
    wrong = []
    with torch.no_grad(), runtime.offload(list(model), slots=1, policy="chain"):
        for where in each_line(lambda: model(x)):
            model[1](x)
            if not equal([p.clone() for p in model.parameters()], values(plain)):
                wrong.append(where)
    assert wrong


@torch.no_grad()
def test_a_run_that_is_refused_while_it_begins_is_none() -> None:
    """It is known before it shows its slot, so it must be forgotten: torch calls the hook after a
    module for it too, which would issue what comes after a run."""
    x = torch.randn(2, WIDTH)
    model = model_of()
    with runtime.offload(list(model), slots=2, policy="chain") as offloaded:
        model(x)
        runs = offloaded.report().runs
        model[2].weight.data = torch.zeros(WIDTH, WIDTH)
        with offloaded.trace() as trace, pytest.raises(OffloadError, match="was given other data"):
            model(x)
        assert offloaded._hooks is not None
        assert offloaded._hooks.running == ()
        after = [one.boundary.step for one in trace.issued if one.boundary.half == "after"]
        assert set(after) == {0}  # and not 2, which refills slot 0 as well
        assert offloaded.report().runs == runs + 2
