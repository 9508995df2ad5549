"""A view of a weight that outlives its module's run is refused, wherever it is kept: the slot will
hold other weights when it is read.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import runtime
from schedule import OffloadError
from tests.runtime.models import Block, batches, outputs, same, stack

Cache = dict[str, Any]
Keep = Callable[["Keeping", Cache], None]


class Keeping(Block):
    """Keeps something of its weights, from the run of this number on."""

    def __init__(self, keep: Keep, first: int) -> None:
        super().__init__()
        self.keep, self.first, self.ran = keep, first, 0

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        self.ran += 1
        if self.ran >= self.first:
            self.keep(self, {} if cache is None else cache)
        return super().forward(x)


class Holder:
    """An object that torch does not know."""

    inside: Any = None


KEPT: list[Any] = []


def in_attribute(block: Keeping, _: Cache) -> None:
    block.kept = [{"one": block.up.weight.detach().t()}]


def in_attribute_of_part(block: Keeping, _: Cache) -> None:
    block.up.transposed = block.up.weight.t()


def in_argument(block: Keeping, cache: Cache) -> None:
    cache["weight"] = block.up.weight[0]


def whole_in_argument(block: Keeping, cache: Cache) -> None:
    cache["weight"] = block.up.weight


def data_in_argument(block: Keeping, cache: Cache) -> None:
    cache["weight"] = block.up.weight.data


def in_object(block: Keeping, cache: Cache) -> None:
    cache["box"] = box = Holder()
    box.inside = Holder()
    box.inside.inside = block.down.bias[1:]


def in_closure(block: Keeping, _: Cache) -> None:
    weight = block.up.weight.t()
    block.later = lambda: weight


def in_global(block: Keeping, _: Cache) -> None:
    KEPT.append(block.up.weight.view(-1))


def as_array(block: Keeping, cache: Cache) -> None:
    cache["array"] = block.up.weight.detach().cpu().numpy()


ATTRIBUTE = r"attribute kept of a Keeping in modules\[0\] keeps a view of its weights, but the slot"
PART = r"attribute transposed of a Linear in modules\[0\] keeps a view of its weights, but the slot"
WEIGHT = r"something \(a cache, an .*\) keeps modules\[0\]\.up\.weight, or a view of it, but"
BIAS = WEIGHT.replace("up", "down").replace("weight", "bias")
WHERE: dict[Keep, str] = {
    in_attribute: ATTRIBUTE,
    in_attribute_of_part: PART,
    in_argument: WEIGHT,
    whole_in_argument: WEIGHT,
    data_in_argument: WEIGHT,
    in_object: BIAS,
    in_closure: WEIGHT,
    in_global: WEIGHT,
    as_array: WEIGHT,
}


def runs(layers: list[Keeping], passes: int) -> None:
    with torch.no_grad():
        for _ in range(passes):
            cache: Cache = {}
            x = batches(1)[0]
            for layer in layers:
                x = layer(x, cache)


@pytest.fixture(autouse=True)
def nothing_kept_before() -> None:
    KEPT.clear()


@pytest.mark.parametrize("keep", WHERE, ids=lambda keep: keep.__name__)
def test_a_view_that_a_module_keeps_is_refused(keep: Keep) -> None:
    layers = [Keeping(keep, 3) for _ in range(3)]
    with runtime.offload(layers, slots=2):
        runs(layers, 2)
        with pytest.raises(OffloadError, match=f"^{WHERE[keep]}"):
            runs(layers, 1)


def test_it_would_show_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin."""
    monkeypatch.setattr("runtime.hooks.check_outliving", lambda *_: None)
    layers = [Keeping(in_attribute_of_part, 3) for _ in range(3)]
    with runtime.offload(layers, slots=1):
        runs(layers, 3)
        assert not torch.equal(layers[1].up.transposed, layers[1].up.weight.t())


def test_it_is_refused_again_until_it_is_gone() -> None:
    layers = [Keeping(in_global, 2), *(Keeping(lambda *_: None, 1) for _ in range(2))]
    with runtime.offload(layers, slots=2):
        runs(layers, 1)
        for _ in range(2):
            with pytest.raises(OffloadError, match=WEIGHT):
                runs(layers, 1)
        layers[0].keep = lambda *_: None
        with pytest.raises(OffloadError, match=WEIGHT):
            runs(layers, 1)
        KEPT.clear()
        runs(layers, 2)


def test_refresh_does_not_hide_it() -> None:
    """Slots are bound anew then, and their old tensors are no more looked at."""
    layers = [Keeping(in_global, 1), Keeping(lambda *_: None, 1)]
    with runtime.offload(layers, slots=1) as offloaded:
        with pytest.raises(OffloadError, match=WEIGHT):
            runs(layers, 1)
        layers[1].up.weight = nn.Parameter(torch.ones(8, 8))
        with pytest.raises(OffloadError, match=WEIGHT):
            offloaded.refresh()
        KEPT.clear()
        layers[0].keep = lambda *_: None
        offloaded.refresh()
        runs(layers, 2)


def test_a_parametrization_that_is_cached_is_refused_if_it_is_a_view() -> None:
    class Transposed(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight.t()

    layers = [nn.Linear(8, 8) for _ in range(3)]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", Transposed())
    x = torch.randn(1, 8)
    with torch.no_grad():
        wanted = [layer(x) for layer in layers]
        with runtime.offload(layers, slots=1):
            assert same([layer(x) for layer in layers], wanted)
            with (
                parametrize.cached(),
                pytest.raises(OffloadError, match=r"modules\[0\]\.parametrizations\.weight\.orig"),
            ):
                layers[0](x)


# ---- what looks like it


def test_a_view_in_a_cycle_that_nothing_refers_to_is_not_kept() -> None:
    def in_cycle(block: Keeping, _: Cache) -> None:
        box = Holder()
        box.inside = [box, block.up.weight.t()]

    layers = [Keeping(in_cycle, 1) for _ in range(3)]
    for layer in layers:
        layer.empty = nn.Parameter(torch.empty(0))  # of which no address says anything
    gc.disable()
    try:
        with runtime.offload(layers, slots=2):
            runs(layers, 3)
    finally:
        gc.enable()


def test_a_weak_reference_keeps_nothing() -> None:
    def weakly(block: Keeping, cache: Cache) -> None:
        cache[str(id(block))] = weakref.ref(block.up.weight)

    layers = [Keeping(weakly, 1) for _ in range(3)]
    with runtime.offload(layers, slots=2):
        runs(layers, 3)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_frames_of_an_error_that_somebody_keeps_are_no_reason(
    error: type[BaseException],
) -> None:
    """Its traceback refers to a run that was cut short, and that refers to a view."""

    def fails(block: Keeping, _: Cache) -> None:
        view = block.up.weight.t()
        if block.ran == 2:
            raise error(view.shape)

    layers = [Keeping(fails, 1), *(Keeping(lambda *_: None, 1) for _ in range(2))]
    with runtime.offload(layers, slots=2):
        runs(layers, 1)
        with pytest.raises(error) as kept:
            runs(layers, 1)
        runs(layers, 2)
        assert kept.value.__traceback__ is not None


def test_a_pass_within_a_run_that_has_a_view_in_hand_is_right() -> None:
    """The inner run of the same module ends while the outer one's view is in use."""
    layers: list[Keeping] = []

    def again(block: Keeping, cache: Cache) -> None:
        view = block.up.weight.t()
        if not cache.get("inside"):
            for layer in layers:
                layer(batches(1)[0], {"inside": True})
        assert view.numel()

    layers += [Keeping(again, 1) for _ in range(3)]
    with runtime.offload(layers, slots=2):
        runs(layers, 2)


def test_other_hooks_may_hold_what_they_like_of_a_run_that_is_over() -> None:
    """Such as the output, and the host master of a weight."""
    model = stack(3)
    held: list[Any] = []
    with runtime.offload(model, slots=2):
        for layer in model.layers:
            layer.register_forward_hook(lambda m, _, y: held.append((m.up.weight, y)))
        found = outputs(model, batches(2))
    assert same(found, outputs(stack(3), batches(2)))
    assert held[0][0] is model.layers[0].up.weight


# ---- other data, in a run


def test_other_data_that_a_module_gives_its_weight_in_a_run_is_refused() -> None:
    def moves(block: Keeping, _: Cache) -> None:
        if block.ran == 2:
            block.up.weight.data = 2 * block.up.weight.data

    layers = [Keeping(moves, 1) for _ in range(3)]
    before = [layer.up.weight.clone() for layer in layers]
    message = r"^modules\[0\]\.up\.weight was given other data \(\.data\) while its module ran"
    with runtime.offload(layers, slots=2):
        runs(layers, 1)
        with pytest.raises(OffloadError, match=message):
            runs(layers, 1)
        layers[1].ran = layers[2].ran = 5
        runs(layers, 2)
    assert same([layer.up.weight for layer in layers], before)


def test_a_look_at_references_changes_none() -> None:
    """Else the count before a run would not be that after it."""
    model = stack(2)
    with runtime.offload(model, slots=1) as offloaded:
        outputs(model, batches(1))
        for weights in offloaded.arena.sets.values():
            assert weights.references() == weights.references() == weights.held
