"""Parts that a plan keeps on the device: never copied, and otherwise like any weight."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import Offloaded
from runtime.parts import resident
from runtime.select import select
from tests.runtime.models import (
    WIDTH,
    Stack,
    assert_unchanged,
    batches,
    outputs,
    picture,
    stack,
)
from tests.runtime.plans import assert_right, costs_of, plan_by_hand

KEPT = {1: ("up.weight",), 2: ("up.weight", "up.bias"), 4: ("down.weight",)}


@pytest.fixture
def offloaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model of which parts stay: 5 uneven blocks over 3 slots."""
    plan_by_hand(monkeypatch, 3, KEPT)
    model = stack(5, uneven=True)
    with runtime.offload(model, memory="1 MB", costs=costs_of(model)) as offloaded:
        yield offloaded


def kept_in(offloaded: Offloaded) -> list[tuple[str, torch.Tensor]]:
    layers = offloaded.selection.modules
    return [
        (f"layers.{at}.{name}", layers[at].get_parameter(name))
        for at, names in KEPT.items()
        for name in names
    ]


def test_kept_parts_are_not_copied(offloaded: Offloaded) -> None:
    model = offloaded.selection.root
    assert isinstance(model, Stack)
    assert_right(model, stack(5, uneven=True), offloaded)
    kept = kept_in(offloaded)
    paths = {f"{one.name}.{item.path}" for one in offloaded.arena.layouts for item in one.items}
    assert len(paths) == 5 * 4 - len(kept)
    assert paths.isdisjoint(name for name, _ in kept)
    assert [size.numel() for size in offloaded.arena.slots] == [
        max(moved for moved, _ in sizes) for sizes in _by_slot(offloaded).values()
    ]


def _by_slot(offloaded: Offloaded) -> dict[int, list[tuple[int, int]]]:
    plan = offloaded.plan
    assert plan is not None
    found: dict[int, list[tuple[int, int]]] = {slot: [] for slot in range(3)}
    for module, slot in enumerate(plan.schedule.slot_of):
        found[slot].append((plan.moved[module], module))
    return found


def test_new_values_of_kept_parts_are_seen(offloaded: Offloaded) -> None:
    model = offloaded.selection.root
    assert isinstance(model, Stack)
    other = stack(5, uneven=True, seed=3)
    model.load_state_dict(other.state_dict())
    assert_right(model, other, offloaded)
    for (_, ours), (_, theirs) in zip(kept_in(offloaded), _kept_of(other), strict=True):
        assert torch.equal(ours, theirs)
    with torch.no_grad():
        for _, part in [*kept_in(offloaded), *_kept_of(other)]:
            part.mul_(-1)
    assert_right(model, other, offloaded)


def _kept_of(model: Stack) -> list[tuple[str, torch.Tensor]]:
    return [
        (name, model.get_parameter(f"layers.{at}.{name}"))
        for at, names in KEPT.items()
        for name in names
    ]


def test_a_kept_part_that_is_replaced_is_kept(offloaded: Offloaded) -> None:
    model, other = offloaded.selection.root, stack(5, uneven=True)
    assert isinstance(model, Stack)
    for one in model, other:
        with torch.no_grad():
            new = torch.full_like(one.layers[2].up.weight, 0.25)
        one.layers[2].up.weight = nn.Parameter(new)
        one.layers[0].down.bias = nn.Parameter(torch.ones(WIDTH))
    offloaded.refresh()
    assert_right(model, other, offloaded)
    assert offloaded.selection.stay == {id(part) for _, part in kept_in(offloaded)}


def test_a_model_that_outgrows_its_memory_is_said(
    offloaded: Offloaded, caplog: pytest.LogCaptureFixture
) -> None:
    model = offloaded.selection.root
    assert isinstance(model, Stack)
    assert offloaded.plan is not None
    for width, grows in (9, False), (40_000, True):
        model.layers[2].up = nn.Linear(WIDTH, width)
        model.layers[2].down = nn.Linear(width, WIDTH)
        caplog.clear()
        offloaded.refresh()
        assert (offloaded.report().bytes_device > offloaded.plan.budget) is grows
        said = "2.7 MB are on the device now, more than the 1.0 MB that were given" in caplog.text
        assert said is grows, caplog.text


def test_saving_and_closing_are_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_by_hand(monkeypatch, 3, KEPT)
    model = stack(5, uneven=True)
    before = picture(model)
    with runtime.offload(model, memory="1 MB", costs=costs_of(model)):
        outputs(model, batches(2))
        state = {name: value.clone() for name, value in model.state_dict().items()}
    assert_unchanged(model, before)
    assert state.keys() == before.values.keys()
    assert all(torch.equal(state[name], value) for name, value in before.values.items())


def test_a_module_may_keep_all_that_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("up.weight", "up.bias", "down.weight", "down.bias")
    plan_by_hand(monkeypatch, 2, {0: names[:3], 2: names[:3]})
    model = stack(4)
    plain = copy.deepcopy(model)
    with runtime.offload(model, memory="1 MB", costs=costs_of(model)) as offloaded:
        assert_right(model, plain, offloaded)


def test_a_checkpoint_is_loaded_by_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept goes from the file to the device."""
    safetensors = pytest.importorskip("safetensors.torch")
    monkeypatch.setattr("runtime.link.LARGEST", 1 << 16)
    plain = stack(5, uneven=True)
    safetensors.save_file(plain.state_dict(), tmp_path / "model.safetensors")
    budget = resident(select(plain)) + sum(costs_of(plain).sizes) // 2
    with torch.device("meta"):
        model = stack(5, uneven=True)
    with runtime.load(model, tmp_path / "model.safetensors", memory=budget) as offloaded:
        assert offloaded.plan is not None
        assert any(offloaded.plan.kept)
        assert_right(model, plain, offloaded)
