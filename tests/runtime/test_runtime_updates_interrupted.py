"""An interrupt within a run loses no update, and spoils no master."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import runtime
from schedule import OffloadError, Refill, Ring, Schedule
from tests.runtime.models import (
    WIDTH,
    Stack,
    after_run,
    assert_same_values,
    batches,
    outputs,
    picture,
)


class Interrupted(nn.Linear):
    """Raises KeyboardInterrupt once, if asked to."""

    armed = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return super().forward(x)


def test_an_update_after_a_keyboard_interrupt_is_not_lost() -> None:
    """The interrupted module still shows its slot, until the next hook."""
    for slots in (1, 2, 3):
        for index in range(3):
            torch.manual_seed(0)
            model = nn.Sequential(*(Interrupted(WIDTH, WIDTH) for _ in range(3)))
            with torch.no_grad(), runtime.offload(model, slots=slots):
                model[index].armed = True
                with pytest.raises(KeyboardInterrupt):
                    model(batches(1)[0])
                zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
                model.load_state_dict(zeros)
                assert not model(batches(1)[0]).any()
                assert not any(p.any() for p in model.parameters())
            assert not any(p.any() for p in model.parameters())


def reloading() -> Schedule:
    """Two modules, one slot, into which every pass loads module 0 when it is entered."""
    return Schedule(
        ring=Ring(2, 1),
        policy="restart",
        slot_of=(0, 0),
        preload=(Refill(0, 0),),
        enter=((Refill(0, 0),),),
        before=((), (Refill(0, 1),)),
        after=((), ()),
        leave=((),),
    )


# Mended: the hook on enter refilled the slot before the interrupted module was unbound.
def test_after_a_keyboard_interrupt_the_first_hook_already_mends() -> None:
    """state_dict as seen by the first layer of the model, which is not offloaded."""
    model = Stack([Interrupted(WIDTH, WIDTH) for _ in range(2)])
    before = picture(model).values
    with runtime.offload(model, slots=1, policy=reloading()):
        model.layers[1].armed = True
        with pytest.raises(KeyboardInterrupt):
            outputs(model, batches(1))
        seen: list[dict[str, torch.Tensor]] = []
        after_run(model.embed, lambda: seen.append(picture(model).values))
        outputs(model, batches(1))
        assert_same_values(seen[0], before)


# Mended: the same, and then module 1's master had module 0's weights for good, in silence.
def test_an_update_after_a_keyboard_interrupt_does_not_spoil_the_master() -> None:
    model = Stack([Interrupted(WIDTH, WIDTH) for _ in range(2)])
    with torch.no_grad(), runtime.offload(model, slots=1, policy=reloading()):
        model.layers[1].armed = True
        with pytest.raises(KeyboardInterrupt):
            outputs(model, batches(1))
        model.layers[1].weight.fill_(3)
        model(batches(1)[0])
    assert (model.layers[1].weight == 3).all()
    assert not torch.equal(model.layers[1].bias, model.layers[0].bias)


# Mended: the actions were those of before, over slots and blocks that were given up.
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(
    "where", ["interpreter.Interpreter.bind", "arena.Arena.adopt", "around.Around.register"]
)
def test_a_refresh_that_is_interrupted_half_way_leaves_no_old_weights(
    monkeypatch: pytest.MonkeyPatch, where: str, static: bool
) -> None:
    """From then on the model runs from its masters, on a CPU; close() is what is left."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    model = Stack([Interrupted(WIDTH, WIDTH) for _ in range(3)])
    plain = copy.deepcopy(model)
    with torch.no_grad(), runtime.offload(model, slots=2, static=static) as offloaded:
        for each in (model, plain):
            torch.manual_seed(5)
            each.layers[1].weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        with monkeypatch.context() as patch:
            patch.setattr(f"runtime.{where}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                offloaded.refresh()
        for x in batches(3):
            assert torch.equal(model(x), plain(x))
    assert_same_values(picture(model).values, picture(plain).values)


def test_a_refresh_that_is_refused_changes_nothing() -> None:
    """Twin: what can't be adopted leaves the hooks where they are."""
    model = Stack([Interrupted(WIDTH, WIDTH) for _ in range(3)])
    with torch.no_grad(), runtime.offload(model, slots=2) as offloaded:
        own = model.layers[1].weight
        model.layers[1].weight = nn.Parameter(torch.empty(WIDTH, WIDTH, device="meta"))
        with pytest.raises(
            OffloadError, match=r"^layers\.1\.weight, of shape .* is on the meta device"
        ):
            offloaded.refresh()
        model.layers[1].weight = own
        offloaded.refresh()
        runs = offloaded.report().runs
        model(batches(1)[0])
        assert offloaded.report().runs == runs + 3
