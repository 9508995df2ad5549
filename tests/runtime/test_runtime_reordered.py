"""Layers that were found are offloaded in the order in which they hang, until the first complete
pass shows that they run in another one; from then on in that.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.arena import slot_sizes
from schedule import OffloadError
from schedule.audit import audit
from tests.runtime.architectures import ARCHITECTURES, built, forward, fresh
from tests.runtime.models import (
    Stack,
    assert_same_values,
    assert_unchanged,
    batches,
    copies_in,
    hook_count,
    outputs,
    picture,
    same,
    stack,
)

NAMES = tuple(f"layers.{number}" for number in range(5, -1, -1))
ADOPTED = (
    "in the first complete pass the modules that were found ran in another order than they hang in "
    f"the model; from now on they are offloaded in it: {list(NAMES)}"
)


class Backwards(Stack):
    """Runs its layers from the last to the first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in reversed(self.layers):
            x = layer(x)
        return self.head(x)


def backwards() -> Backwards:
    return Backwards(stack(6, uneven=True).layers).eval()


def passes(model: Stack, number: int) -> list[torch.Tensor]:
    return outputs(model, batches(number))


POLICIES = ["single_buffer", "chain", "double_buffer", "balanced", "rotating", "restart"]


@pytest.mark.parametrize("policy", POLICIES)
def test_from_the_second_pass_on_no_module_misses(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model = backwards()
    before, wanted = picture(model), passes(model, 3)
    slots = 1 if policy == "single_buffer" else 2
    caplog.set_level(logging.INFO)
    with runtime.offload(model, slots=slots, policy=policy) as offloaded:
        assert offloaded.selection.names == NAMES[::-1]
        assert same(passes(model, 1), wanted[:1])
        missed = offloaded.report().misses
        assert missed > 0
        assert caplog.messages.count(ADOPTED) == 1
        assert not any(record.levelno > logging.INFO for record in caplog.records)
        assert offloaded.selection.names == offloaded.recorded_order() == NAMES
        copies = offloaded.report().copies
        for _ in range(2):
            assert same(passes(model, 3), wanted)
        report = offloaded.report()
        assert report.misses == missed
        assert report.copies - copies == copies_in(offloaded.schedule, 6)
        largest = slot_sizes(offloaded.arena.layouts, offloaded.schedule)
        room = [slot.numel() for slot in offloaded.arena.slots]
        assert all(a >= b > 0 for a, b in zip(room, largest, strict=True))
        assert [layout.name for layout in offloaded.arena.layouts] == list(NAMES)
        assert report.bytes_slots == sum(slot.numel() for slot in offloaded.arena.slots)
    assert_unchanged(model, before)
    assert caplog.messages.count(ADOPTED) == 1


def test_what_is_done_with_the_model_afterwards_is_as_before() -> None:
    model = backwards()
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=2) as offloaded:
        passes(model, 1)
        for one in model, twin:
            values = {name: value + 1 for name, value in one.state_dict().items()}
            one.load_state_dict(values, assign=True)
        assert same(passes(model, 2), passes(twin, 2))
        for one in model, twin:
            one.layers[3].up.weight = nn.Parameter(one.layers[3].up.weight.detach() * 2)
        with pytest.raises(OffloadError, match=r"^layers\.3\.up\.weight was replaced"):
            passes(model, 1)
        offloaded.refresh()
        assert same(passes(model, 2), passes(twin, 2))
        with offloaded.trace() as trace:
            passes(model, 3)
        assert audit(trace).fits
        assert_same_values(model.state_dict(), picture(twin).values)
        misses = offloaded.report().misses
        assert same(passes(model, 3), passes(twin, 3))
        assert offloaded.report().misses == misses
    assert same(passes(model, 2), passes(twin, 2))


@contextmanager
def not_adopted_here(
    model: Backwards, caplog: pytest.LogCaptureFixture, **options: Any
) -> Iterator[Offloaded]:
    """The modules keep their order, each pass misses, and it is said how to mend that."""
    with runtime.offload(model, slots=2, policy="chain", **options) as offloaded:
        names = offloaded.selection.names
        yield offloaded
        assert offloaded.selection.names == names
        before = offloaded.report().misses
        passes(model, 1)
        assert offloaded.report().misses > before
    assert sum("offload with layers in this order" in said for said in caplog.messages) == 1


def test_layers_that_were_given_stay_in_their_order(caplog: pytest.LogCaptureFixture) -> None:
    model = backwards()
    with not_adopted_here(model, caplog, layers="layers.*"):
        passes(model, 2)


def test_a_trace_is_not_cut_in_two(caplog: pytest.LogCaptureFixture) -> None:
    model = backwards()
    with not_adopted_here(model, caplog) as offloaded, offloaded.trace() as trace:
        passes(model, 2)
    assert audit(trace).fits


def test_where_larger_slots_do_not_fit_it_stays(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("no memory left")

    model = backwards()
    wanted = passes(model, 2)
    with not_adopted_here(model, caplog):
        with monkeypatch.context() as patch:
            patch.setattr("runtime.arena.slot_sizes", lambda *_: [1 << 20] * 2)
            patch.setattr("runtime.arena.torch.empty", full)
            passes(model, 1)
        assert same(passes(model, 2), wanted)
    assert any("is not adopted: no memory left" in said for said in caplog.messages)


def test_an_interrupt_half_way_leaves_no_module_with_another_s_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hooks are gone then: each module has its masters, which are the values that it has."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    model = backwards()
    before = picture(model)
    with runtime.offload(model, slots=2):
        with monkeypatch.context() as patch:
            patch.setattr("runtime.interpreter.Interpreter.bind", interrupt)
            with pytest.raises(KeyboardInterrupt):
                passes(model, 1)
        with torch.no_grad():
            for layer in model.layers:
                layer.up.weight.mul_(2)
        twin = backwards()
        twin.load_state_dict(model.state_dict())
        assert same(passes(model, 3), passes(twin, 3))
        assert hook_count(model) == 0
        with torch.no_grad():
            for layer in model.layers:
                layer.up.weight.div_(2)
    assert_unchanged(model, before)


def test_a_pass_within_a_run_does_not_change_the_order_under_it() -> None:
    """The root is called inside a module's run."""
    model = backwards()
    nested: list[torch.Tensor] = []
    begun: list[bool] = []

    def inside(*_: object) -> None:
        if not begun:
            begun.append(True)
            nested.append(model(batches(1)[0]))

    wanted = passes(model, 2)
    model.layers[1].down.register_forward_pre_hook(inside)
    with runtime.offload(model, slots=2) as offloaded:
        assert same(passes(model, 2), wanted)
        assert same(nested, wanted[:1])
        misses = offloaded.report().misses
        assert same(passes(model, 2), wanted)
        assert offloaded.report().misses >= misses


ANOTHER = [name for name in ("CLIP", "UNet", "AutoencoderKL", "Siglip") if name in ARCHITECTURES]


@pytest.mark.parametrize("name", ANOTHER)
def test_models_that_hang_in_another_order_are_right_from_the_first_pass(name: str) -> None:
    wanted, model = forward(name, built(name)), fresh(name)
    with runtime.offload(model, slots=2) as offloaded:
        assert same(forward(name, model), wanted)
        misses = offloaded.report().misses
        assert misses > 0
        for _ in range(2):
            assert same(forward(name, model), wanted)
        assert offloaded.report().misses == misses
    assert same(forward(name, model), wanted)
