"""on_miss="raise": a miss is an error that names module, slot and content."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import runtime
from runtime import Offloaded
from runtime.device import InlineStreams, Pieces
from schedule import ModuleNotResident
from tests.runtime.models import WIDTH, Stack, stack


def three(**options: object) -> tuple[Stack, Offloaded]:
    model = stack(3)
    return model, runtime.offload(model, slots=2, **options)


def test_a_miss_raises_and_names_module_slot_and_content() -> None:
    model, offloaded = three(policy="chain", on_miss="raise")
    x = torch.zeros(1, WIDTH)
    with torch.no_grad(), offloaded:
        with pytest.raises(ModuleNotResident) as caught:
            model.layers[2](x)
        assert str(caught.value) == (
            "layers.2 (module 2) arrived, but its slot 0 holds layers.0 (module 0); modules must "
            "run in the order 0 .. 2, and weights must not change between passes; "
            "on_miss='reload' allows both"
        )
        assert offloaded.report().misses == 1
        assert offloaded.report().runs == 0
        # Nothing was done to what is resident: the pass in order is right.
        assert torch.equal(model(x), stack(3)(x))


def test_a_miss_after_an_update_says_that_the_weights_are_older() -> None:
    model, offloaded = three(policy="chain", on_miss="raise")
    with torch.no_grad(), offloaded:
        model.layers[0].up.weight.add_(1)
        with pytest.raises(ModuleNotResident, match=r"slot 0 holds an older version of its weight"):
            model(torch.zeros(1, WIDTH))


def test_a_miss_after_a_failed_copy_says_that_the_slot_holds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = [False]
    plain_copy = InlineStreams.copy

    def copy_or_fail(*arguments: object) -> Callable[[], None]:
        action = plain_copy(*arguments)

        def act() -> None:
            if broken[0]:
                raise RuntimeError("no copy today")
            action()

        return act

    monkeypatch.setattr(InlineStreams, "copy", copy_or_fail)
    model, offloaded = three(policy="chain", on_miss="raise")
    x = torch.zeros(1, WIDTH)
    with torch.no_grad(), offloaded:
        broken[0] = True
        with pytest.raises(RuntimeError, match="no copy today"):
            model(x)
        broken[0] = False
        with pytest.raises(ModuleNotResident, match=r"layers\.0 .* its slot 0 holds nothing;"):
            model(x)


def test_a_failed_copy_is_repeated_on_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [False]
    plain_copy = InlineStreams.copy

    def half_copy(self: InlineStreams, stream: str, pieces: Pieces):
        whole, ((target, source),) = plain_copy(self, stream, pieces), pieces

        def act() -> None:
            if broken[0]:
                target[:64] = source[:64]
                raise RuntimeError("half a copy")
            whole()

        return act

    monkeypatch.setattr(InlineStreams, "copy", half_copy)
    model, offloaded = three(policy="chain")
    x = torch.randn(1, WIDTH)
    with torch.no_grad(), offloaded:
        broken[0] = True
        with pytest.raises(RuntimeError, match="half a copy"):
            model(x)
        broken[0] = False
        assert torch.equal(model(x), stack(3)(x))
        assert offloaded.report().misses == 1


def test_after_an_abandoned_pass_only_a_new_offload_helps() -> None:
    """So much is the price of "raise": no pass in order can follow."""
    model, offloaded = three(policy="chain", on_miss="raise")
    x = torch.zeros(1, WIDTH)
    with torch.no_grad(), offloaded:
        model.layers[0](x)
        for _ in range(3):
            with pytest.raises(ModuleNotResident, match=r"^layers\.0 .* holds layers\.2 "):
                model(x)
    with torch.no_grad(), runtime.offload(model, slots=2, policy="chain", on_miss="raise"):
        assert torch.equal(model(x), stack(3)(x))
