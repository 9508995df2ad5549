"""The device itself asserts that a slot holds the whole of a module, by its two numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch

import runtime
from runtime import Offloaded
from tests.runtime.models import Block, Stack
from tests.runtime.test_runtime_numbers import number, whole

SMALL, TWIN, LARGE = 0, 1, 2
MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.fixture(params=MODES)
def offloaded(request: pytest.FixtureRequest) -> Iterator[Offloaded]:
    """Two modules of one size and a larger one, over a slot in which nothing is."""
    model = Stack([Block(), Block(), Block(200)]).eval()
    with MODES[request.param](), runtime.offload(model, slots=1, policy="chain") as offloaded:
        sizes = [layout.size for layout in offloaded.arena.layouts]
        assert sizes[SMALL] == sizes[TWIN] < sizes[LARGE]
        offloaded.arena.slots[0].fill_(0xFF)
        yield offloaded


def put(offloaded: Offloaded, module: int, begin: int = 0, end: int | None = None) -> None:
    """Copy the module's block into the slot, or a part of it."""
    block = whole(offloaded.arena.blocks[module])[begin:end]
    offloaded.arena.slots[0][begin : begin + block.numel()].copy_(block)


def found_for(offloaded: Offloaded, module: int) -> tuple[int, int]:
    """The numbers in the slot, where this module's would be."""
    slot, end = offloaded.arena.slots[0], offloaded.arena.layouts[module].end
    return number(slot, 0), number(slot, end)


def assert_refused(offloaded: Offloaded, module: int) -> None:
    message = (
        rf"slot 0 does not hold layers\.{module} \(module {module}\), which is about to run from it"
    )
    with pytest.raises(RuntimeError, match=message):
        offloaded.arena.require_on_device(module, 0)


def test_its_own_module_is_accepted(offloaded: Offloaded) -> None:
    for module in (SMALL, LARGE, TWIN, SMALL):
        assert_refused(offloaded, module)
        put(offloaded, module)
        offloaded.arena.require_on_device(module, 0)


def test_another_module_of_the_same_size_is_refused(offloaded: Offloaded) -> None:
    put(offloaded, SMALL)
    assert_refused(offloaded, TWIN)
    assert found_for(offloaded, TWIN) == (SMALL, SMALL)


def test_a_smaller_module_over_a_larger_one_is_refused(offloaded: Offloaded) -> None:
    """The larger one's last number survives; its first does not."""
    put(offloaded, LARGE)
    put(offloaded, SMALL)
    assert_refused(offloaded, LARGE)
    assert found_for(offloaded, LARGE) == (SMALL, LARGE)
    offloaded.arena.require_on_device(SMALL, 0)


def test_a_larger_module_over_a_smaller_one_is_refused(offloaded: Offloaded) -> None:
    put(offloaded, SMALL)
    put(offloaded, LARGE)
    assert_refused(offloaded, SMALL)
    assert found_for(offloaded, SMALL)[0] == LARGE


@pytest.mark.parametrize("module", [TWIN, LARGE])
def test_a_block_whose_last_bytes_were_not_copied_is_refused(
    offloaded: Offloaded, module: int
) -> None:
    """The first number is the module's; its last is not there yet."""
    put(offloaded, SMALL)
    end = offloaded.arena.layouts[module].end
    put(offloaded, module, end=end)
    assert_refused(offloaded, module)
    assert found_for(offloaded, module)[0] == module
    put(offloaded, module, begin=end)
    offloaded.arena.require_on_device(module, 0)


def test_a_block_whose_first_bytes_were_not_copied_is_refused(offloaded: Offloaded) -> None:
    put(offloaded, SMALL)
    put(offloaded, TWIN, begin=256)
    assert_refused(offloaded, TWIN)
    assert found_for(offloaded, TWIN) == (SMALL, TWIN)
