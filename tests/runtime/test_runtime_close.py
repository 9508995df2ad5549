"""After close(), and after wrapping failed, the model is what it was: objects, values, hooks."""

from __future__ import annotations

import copy
import gc
import importlib
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.arena import Arena
from runtime.hooks import Hooks
from runtime.host import HostMemory
from runtime.interpreter import Interpreter
from runtime.leaves import place_at
from schedule import Policy
from schedule.ring import Sizes
from tests.runtime.models import (
    Stack,
    assert_unchanged,
    batches,
    outputs,
    picture,
    same,
    stack,
)


def test_close_gives_everything_back() -> None:
    model = stack(5, uneven=True)
    before = picture(model)
    offloaded = runtime.offload(model, slots=2)
    outputs(model, batches(2))
    offloaded.close()
    assert_unchanged(model, before)
    assert same(outputs(model, batches(2)), outputs(stack(5, uneven=True), batches(2)))


def test_the_parameters_own_ordinary_memory_again() -> None:
    """None of it is the host block's, which can be freed."""
    model = stack(3)
    offloaded = runtime.offload(model, slots=2)
    kept = [segment.bytes for (segment,) in offloaded.arena.blocks]
    blocks = [(b.data_ptr(), b.data_ptr() + b.numel()) for b in kept]
    offloaded.close()
    assert offloaded.arena.blocks == []
    for parameter in model.parameters():
        assert not any(first <= parameter.data_ptr() < last for first, last in blocks)
    for block in kept:
        block.fill_(0xFF)
    assert same(outputs(model, batches(1)), outputs(stack(3), batches(1)))


def test_closing_twice_is_closing_once() -> None:
    model = stack(3)
    before = picture(model)
    with runtime.offload(model, slots=2) as offloaded:
        offloaded.close()
        assert_unchanged(model, before)
        again = runtime.offload(model, slots=2)
        offloaded.close()  # must not take the other one's hooks
        outputs(model, batches(1))
        assert again.report().runs == 3
    again.close()
    assert_unchanged(model, before)
    assert "closed" in repr(offloaded)


def test_the_context_manager_closes_after_an_exception() -> None:
    model = stack(3)
    before = picture(model)
    with pytest.raises(ValueError, match="planned"), runtime.offload(model, slots=2):
        raise ValueError("planned")
    assert_unchanged(model, before)


def test_what_was_written_while_offloaded_is_kept() -> None:
    model = stack(3)
    with runtime.offload(model, slots=2), torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(2)
    assert all((parameter == 2).all() for parameter in model.parameters())


# ---- in the middle of a pass


def closing(module: nn.Module, box: list[Offloaded], *, before: bool) -> Any:
    """A hook that closes the offload when the module runs."""

    def close(*_: object) -> None:
        if box:
            box.pop().close()

    register = module.register_forward_pre_hook if before else module.register_forward_hook
    return register(close)


WHERE: dict[str, Callable[[Stack, int], nn.Module]] = {
    "inside": lambda model, index: model.layers[index].down,
    "at": lambda model, index: model.layers[index],
}


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("late", [True, False], ids=["registered late", "registered first"])
@pytest.mark.parametrize("where", WHERE)
# Mended: [at-registered first-True-*]: our hook still ran after close(): IndexError; before that
# it bound the slot for good.
def test_closing_in_the_middle_of_a_pass(where: str, late: bool, before: bool, index: int) -> None:
    """From a hook inside a module or of a module: before ours or after them."""
    model = stack(3)
    wanted = outputs(copy.deepcopy(model), batches(2))
    pictured = picture(model)
    box: list[Offloaded] = []
    if late:
        box.append(runtime.offload(model, slots=2))
    handle = closing(WHERE[where](model, index), box, before=before)
    if not late:
        box.append(runtime.offload(model, slots=2))
    assert same(outputs(model, batches(2)), wanted)
    assert not box
    handle.remove()
    assert_unchanged(model, pictured)


@pytest.mark.parametrize("number", range(12))
def test_a_close_that_was_interrupted_goes_on_when_called_again(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = stack(3)
    before = picture(model)
    offloaded = runtime.offload(model, slots=2)
    with monkeypatch.context() as patch:
        patch.setattr("runtime.arena.place_at", late_failure(number))
        with pytest.raises(Planned):
            offloaded.close()
    offloaded.close()
    assert_unchanged(model, before)
    with runtime.offload(model, slots=2):
        assert same(outputs(model, batches(1)), outputs(stack(3), batches(1)))


def test_closing_after_a_keyboard_interrupt() -> None:
    """No hook ran after the module, and none will."""
    model = stack(3)
    before = picture(model)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for layer in model.layers:
        with runtime.offload(model, slots=2):
            handle = layer.down.register_forward_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                outputs(model, batches(1))
            handle.remove()
        assert_unchanged(model, before)


# ---- wrapping fails


class Planned(BaseException):
    """As fatal as a KeyboardInterrupt."""


def fail_at(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, failing at its call of that number."""
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > number:
            raise Planned
        return function(*arguments, **options)

    return call


offloading = importlib.import_module("runtime.offload")  # runtime.offload is the function
wrapping = importlib.import_module("runtime.offloaded")
placing = importlib.import_module("runtime.placement")
static = importlib.import_module("runtime.static")
STAGES = {
    "lay_out": (placing, "lay_out", 4),
    "the arena": (static, "Arena", 1),
    "the host block": (HostMemory, "block", 4),
    "lock": (HostMemory, "lock", 1),
    "adopt": (Arena, "adopt", 4),
    "lower": (offloading, "lower", 1),
    "Interpreter": (wrapping, "Interpreter", 1),
    "the preload": (Interpreter, "issue", 1),
    "Hooks": (static, "Hooks", 1),
    "before the hooks": (Hooks, "_before", 4),
    "after the hooks": (Hooks, "_after", 4),
}


# Mended: [before the hooks], [after the hooks]: what was registered stayed.
@pytest.mark.parametrize("stage", STAGES)
def test_when_wrapping_fails_nothing_is_changed(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, count = STAGES[stage]
    model = stack(4, uneven=True)
    wanted = outputs(copy.deepcopy(model), batches(1))
    before = picture(model)
    plain = getattr(owner, name)
    for number in range(count):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail_at(number, plain))
            with pytest.raises(Planned):
                runtime.offload(model, slots=2)
        assert_unchanged(model, before)
        assert same(outputs(model, batches(1)), wanted)
    with runtime.offload(model, slots=2):
        assert same(outputs(model, batches(1)), wanted)


def test_when_a_copy_of_a_master_fails_the_model_is_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of a module's parameters lie in the host block already."""
    model = stack(3)
    before = picture(model)
    for number in range(12):
        with monkeypatch.context() as patch:
            patch.setattr("runtime.arena.place_at", late_failure(number))
            with pytest.raises(Planned):
                runtime.offload(model, slots=2)
        assert_unchanged(model, before)


def late_failure(number: int) -> Callable[..., None]:
    """place_at, failing once, at its call of that number; close() uses it again."""
    calls = iter(range(10**6))

    def place(parameter: nn.Parameter, tensor: torch.Tensor) -> None:
        if next(calls) == number:
            raise Planned
        place_at(parameter, tensor)

    return place


def only_two(index: int, slots: int, modules: int) -> int:
    """A user's function with no answer for other numbers of slots."""
    if slots != 2:
        raise LookupError("no table for that many slots")
    return index + slots if index + slots < modules else index % slots


def only_two_slots(step: int, ring: Sizes) -> int:
    return {2: step % 2}[ring.slots]


@pytest.mark.parametrize("policy", [only_two, Policy("mine", only_two_slots)])
def test_a_policy_that_fails_for_one_slot_more_does_no_harm(
    policy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The log line asks the policy about one slot more, when the model is wrapped already."""
    model = stack(3)
    before = picture(model)
    caplog.set_level(logging.INFO, "ringproof.runtime")
    try:
        offloaded = runtime.offload(model, slots=2, policy=policy)
    except (ValueError, LookupError):
        assert_unchanged(model, before)
        raise
    assert same(outputs(model, batches(1)), outputs(stack(3), batches(1)))
    offloaded.close()
    assert_unchanged(model, before)


def test_an_offload_that_nobody_closes_does_not_keep_the_model_alive() -> None:
    """Hooks and offload refer to one another; the garbage collector frees them."""
    model = stack(3)
    alive = weakref.ref(model)
    runtime.offload(model, slots=2)
    del model
    gc.collect()
    assert alive() is None
