"""An interrupt within a run loses no update, and spoils no master."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import runtime
from schedule import Refill, Ring, Schedule
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
