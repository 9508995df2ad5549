"""Reports of weights that hang elsewhere too, and of buffers (REPORTS 3.7)."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import runtime
from runtime.arena import Arena
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    assert_same_values,
    batches,
    outputs,
    picture,
    same,
    stack,
)


class Reaching(Stack):
    """Uses a weight of its second block without calling that block, after all of them ran."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(super().forward(x), self.layers[1].up.weight)


def test_a_weight_is_used_without_calling_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers #46978, accelerate #767: silently wrong, since the parent read what the hooks
    had left there. Here it is the host master: on a device that is torch's own error."""
    torch.manual_seed(0)
    model = Reaching([Block() for _ in range(3)]).eval()
    expected = outputs(model, batches(3))
    with runtime.offload(model, slots=1):
        assert same(outputs(model, batches(3)), expected)
    monkeypatch.setattr(Arena, "unbind", lambda *_: None)  # and so the slot's weights stay there
    monkeypatch.setattr("runtime.hooks.check_outliving", lambda *_: None)
    with runtime.offload(model, slots=1):
        assert not same(outputs(model, batches(3)), expected)


class Shared(nn.Module):
    """A block whose child has its parent's parameter, under a name of its own, and twice."""

    def __init__(self) -> None:
        super().__init__()
        self.outer, self.inner = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner.weight = self.outer.weight
        self.again = self.outer.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(torch.tanh(self.outer(x))) @ self.again


def test_one_parameter_under_several_names() -> None:
    """sglang #23150, #36509, #40310, vLLM #12541: the copies of a tied weight had a key of their
    own each; a crash, or two copies that came apart. It is copied once and stays one object."""
    torch.manual_seed(0)
    model = Stack([Shared() for _ in range(3)]).eval()
    expected, first = outputs(model, batches(2)), model.layers[0]
    seen = []
    first.inner.register_forward_hook(
        lambda *_: seen.append((first.again is first.inner.weight, first.again is own))
    )
    own = first.outer.weight
    with runtime.offload(model, slots=1) as offloaded:
        assert same(outputs(model, batches(2)), expected)
        distinct = 3 * 4 * (WIDTH * WIDTH + 2 * WIDTH)
        assert offloaded.report().bytes_offloaded == distinct
        assert first.outer.weight is first.inner.weight is first.again is own
    assert seen == [(True, False)] * 2  # in the run all names are one, and it lies in the slot
    # Twin: untied, the same layers are two weights more each.
    for layer in model.layers:
        layer.inner.weight, layer.again = (
            nn.Parameter(layer.outer.weight.detach().clone()) for _ in range(2)
        )
    with runtime.offload(model, slots=1) as offloaded:
        assert offloaded.report().bytes_offloaded == distinct + 3 * 4 * 2 * WIDTH * WIDTH


class Counting(nn.Module):
    """A block that normalises, and so keeps statistics and a count in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x))


def counted(model: Stack) -> list[int]:
    return [int(layer.norm.num_batches_tracked) for layer in model.layers]


def test_updates_of_buffers_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """diffusers #13238: what a pass wrote into a buffer was gone when the initial value was copied
    again. Two passes give the plain model's buffers, and the next one starts from them."""
    torch.manual_seed(0)
    plain = Stack([Counting() for _ in range(3)]).train()
    model = Stack([Counting() for _ in range(3)]).train()
    model.load_state_dict(plain.state_dict())
    expected = outputs(plain, batches(3))
    with runtime.offload(model, slots=1):
        assert same(outputs(model, batches(3)), expected)
        assert_same_values(model.state_dict(), plain.state_dict())
        assert counted(model) == [3, 3, 3]
    assert_same_values(model.state_dict(), plain.state_dict())
    monkeypatch.setattr(Arena, "keep_writes", lambda *_: None)
    with runtime.offload(model, slots=1):
        outputs(model, batches(3))
        assert counted(model) == [3, 3, 3]  # and not 6


class Rotary(nn.Module):
    """A child of a child with a buffer that no state dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.arange(WIDTH), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + self.steps)


class Nested(Block):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.Sequential(Rotary(), nn.Linear(WIDTH, WIDTH)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.attention(x))


def test_a_buffer_that_is_not_saved_is_moved_by_its_full_name() -> None:
    """accelerate #1710, #951, #1941, #4189: buffers that are not persistent, or were looked up by
    their bare names, stayed on meta or were taken from another child."""
    torch.manual_seed(0)
    model = Stack([Nested() for _ in range(3)]).eval()
    for number, layer in enumerate(model.layers):
        layer.attention[0][0].steps += 10 * number
    expected, before = outputs(model, batches(2)), picture(model)
    with runtime.offload(model, slots=1) as offloaded:
        assert same(outputs(model, batches(2)), expected)
        assert_same_values(model.state_dict(), before.values)
        weights = sum(p.nbytes for p in model.layers.parameters())
        assert offloaded.report().bytes_offloaded == weights + 3 * 8 * WIDTH
    for layer in model.layers[1:]:
        layer.attention[0][0].steps.copy_(model.layers[0].attention[0][0].steps)
    assert not same(outputs(model, batches(2)), expected)  # the values tell the buffers apart


def test_weights_that_no_group_has_are_never_on_the_device() -> None:
    """diffusers #12319, sdnext #5025: what was in no group was never brought to the device. Each
    byte of the model is offloaded or counts as the rest, which is on the device."""
    model = stack(4, uneven=True)
    whole = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    rest = sum(t.nbytes for t in (*model.embed.parameters(), *model.head.parameters()))
    with runtime.offload(model, slots=2) as offloaded:
        report = offloaded.report()
    assert report.bytes_offloaded + report.bytes_rest == report.bytes_whole == whole
    assert report.bytes_rest == rest + model.scale.nbytes
    with runtime.offload(model, slots=2, keep="layers.3") as offloaded:
        assert offloaded.report().bytes_rest == report.bytes_rest + sum(
            p.nbytes for p in model.layers[3].parameters()
        )
