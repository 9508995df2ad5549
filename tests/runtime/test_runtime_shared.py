"""The same parameter in several places is moved once, and is right in each."""

from __future__ import annotations

import copy

import torch
from torch import nn

import runtime
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    as_bytes,
    assert_same_values,
    assert_unchanged,
    batches,
    outputs,
    picture,
    same,
    stack,
)


class Twice(nn.Module):
    """One parameter under two names and in two submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH)
        self.b.weight = self.a.weight
        self.other_name = self.a.bias
        self.bad: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.a.weight is not self.b.weight or self.other_name is not self.a.bias:
            self.bad.append("torn apart")
        return torch.tanh(self.b(self.a(x)) + self.other_name)


def test_a_parameter_under_two_names_in_one_module_is_moved_once() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Twice() for _ in range(3)))
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        report = offloaded.report()
        assert report.bytes_offloaded == 3 * (WIDTH * WIDTH + 2 * WIDTH) * 4
        assert report.stay == ()
        assert not any(layer.bad for layer in model)
        assert all(layer.a.weight is layer.b.weight for layer in model)
    assert_unchanged(model, before)


def test_a_parameter_that_two_modules_share_stays() -> None:
    model = stack(4)
    model.layers[3].up.weight = model.layers[1].up.weight
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        report = offloaded.report()
        (name,) = report.stay
        assert name in ("layers.1.up.weight", "layers.3.up.weight")
        assert report.bytes_offloaded == (4 * 2 * (WIDTH + 1) * WIDTH - 2 * WIDTH * WIDTH) * 4
        assert report.bytes_whole == sum(p.numel() * 4 for p in model.parameters()) + WIDTH * 4
        assert f"shared     {name} stay on the device" in str(report)
        with torch.no_grad():
            model.layers[1].up.weight.mul_(2)
        assert not same(outputs(model, batches(2)), wanted)
    assert model.layers[3].up.weight is model.layers[1].up.weight
    before.values["layers.1.up.weight"] *= 2  # one tensor in the copy too
    assert_unchanged(model, before)


def test_a_parameter_shared_with_the_rest_of_the_model_stays() -> None:
    model = stack(4)
    model.head.weight = model.layers[2].down.weight
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        assert offloaded.report().stay == ("layers.2.down.weight",)
        assert model.head.weight is model.layers[2].down.weight
    assert_unchanged(model, before)


def test_a_submodule_that_two_modules_share_stays() -> None:
    model = stack(3)
    model.layers[2].down = model.layers[0].down
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        names = [name.split(".", 2)[2] for name in offloaded.report().stay]
        assert names == ["down.weight", "down.bias"]


def test_buffers_and_the_rest_are_not_touched_on_a_cpu() -> None:
    """They are on the device already: the same objects, at the same addresses."""
    model = Stack([nn.Sequential(Block(), nn.BatchNorm1d(WIDTH)) for _ in range(3)]).eval()
    wanted = outputs(copy.deepcopy(model), batches(2))

    def rest() -> list[tuple[int, int]]:
        tensors = [*model.buffers(), *model.embed.parameters(), *model.head.parameters()]
        small = [one for one in tensors if one.is_floating_point()]  # integers are offloaded
        return [(id(tensor), tensor.data_ptr()) for tensor in small]

    before = rest()
    for device in (None, "cpu"):
        with runtime.offload(model, slots=2, device=device):
            assert rest() == before
            assert same(outputs(model, batches(2)), wanted)
        assert rest() == before


def test_the_rest_is_moved_and_moved_back() -> None:
    """A CPU with a number counts as another device than the one without: enough to see that
    parameters stay the same objects, and that buffers come back."""
    model = Stack([Block() for _ in range(3)]).eval()
    model.head.weight = model.embed.weight  # hangs in two places, is moved once
    wanted = outputs(copy.deepcopy(model), batches(2))
    before = picture(model)
    with runtime.offload(model, slots=2, device="cpu:0") as offloaded:
        moved = [name for _, name, _ in offloaded.placement._moved]
        assert {"weight", "bias", "scale"} <= set(moved)
        assert same(outputs(model, batches(2)), wanted)
        now = picture(model).parameters
        assert all(now[name] is parameter for name, parameter in before.parameters.items())
        assert_same_values(model.state_dict(), before.values)
    assert_unchanged(model, before)
    assert model.scale.device == before.values["scale"].device


def test_what_was_taken_out_beside_the_layers_is_not_moved_back() -> None:
    model = stack(3)
    before = {name: as_bytes(tensor) for name, tensor in model.state_dict().items()}
    with runtime.offload(model, slots=2, device="cpu:0"):
        model.head.bias = None
        del model._buffers["scale"]
    assert model.embed.weight.device == torch.device("cpu")
    now = {name: as_bytes(tensor) for name, tensor in model.state_dict().items()}
    assert now == {n: v for n, v in before.items() if n not in ("head.bias", "scale")}
