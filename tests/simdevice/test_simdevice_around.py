"""Around the passes on the simulated device, where the host runs ahead of copies and compute: what
is saved, loaded, moved and closed then."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

import runtime
from runtime.device import AcceleratorStreams
from schedule.errors import OffloadError
from tests.runtime.models import (
    WIDTH,
    Stack,
    after_run,
    assert_same_values,
    assert_unchanged,
    before_run,
    outputs,
    picture,
    stack,
)
from tests.simdevice.ahead import INPUTS, N, allocated, offloaded_to, on_device, registered, seeds
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import same


@pytest.fixture
def here(sim: SimDevice) -> list[torch.Tensor]:
    """The inputs."""
    del sim
    return on_device()


def copier(offloaded: runtime.Offloaded) -> torch.Stream:
    (stream,) = offloaded.streams._copy_streams.values()
    return stream


# ---- saving


@pytest.mark.parametrize("keep_vars", [False, True])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_state_dict_while_copies_are_under_way_is_right_and_waits_for_none(
    sim: SimDevice, here: list[torch.Tensor], slots: int, keep_vars: bool
) -> None:
    model, taken = stack(N, uneven=True), []
    before, wanted = picture(model).values, outputs(model, INPUTS)
    layers = "layers."  # the rest is on the device, behind its compute

    def take() -> None:
        state = model.layers.state_dict(prefix=layers, keep_vars=keep_vars)
        taken.append((state, copier(offloaded).query()))

    for module in model.layers.modules():
        before_run(module, take)
        after_run(module, take)
    with offloaded_to(model, slots) as offloaded:
        with sim.held(copier(offloaded)):
            given = outputs(model, here)
        assert same(given, wanted)
        assert len(taken) == 2 * 2 * 3 * N
        assert not any(landed for _, landed in taken[2 * N :])
        of_layers = {name: value for name, value in before.items() if name.startswith(layers)}
        for state, _ in taken:
            assert_same_values(state, of_layers)
        assert_same_values(model.state_dict(), before)


class Writing(nn.Linear):
    """Writes into its weight, then saves it in the same run."""

    saved: list[torch.Tensor]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.weight.mul_(-1)
        self.saved.append(self.state_dict()["weight"].clone())
        return torch.tanh(super().forward(x))


def test_what_a_run_wrote_so_far_is_in_its_state_dict(
    sim: SimDevice, here: list[torch.Tensor]
) -> None:
    torch.manual_seed(0)
    model, Writing.saved = Stack([Writing(WIDTH, WIDTH) for _ in range(N)]), []
    weights = [layer.weight.detach().clone() for layer in model.layers]
    with offloaded_to(model):
        for seed, adversary in seeds():
            Writing.saved.clear()
            with sim.steps(seed, adversary):
                outputs(model, here)
            for at, saved in enumerate(Writing.saved):
                assert saved.device.type == "cpu"
                assert torch.equal(saved, weights[at % N] * (-1 if at < N else 1)), (seed, at)
            assert len(Writing.saved) == 2 * N


# ---- loading


class Loads:
    """A model between two sets of values, which a pass under way and the next one must tell
    apart."""

    def __init__(self, slots: int) -> None:
        self.model, other = stack(N, uneven=True), stack(N, uneven=True, seed=7)
        self.values = [copy.deepcopy(one.state_dict()) for one in (self.model, other)]
        self.wanted = [outputs(one, INPUTS) for one in (self.model, other)]
        self.offloaded, self.now = offloaded_to(self.model, slots), 0

    def right(self, here: list[torch.Tensor], load: Callable[..., object]) -> tuple[bool, bool]:
        """Whether the pass before and the pass after are right."""
        first = outputs(self.model, here)
        self.now = 1 - self.now
        load(self.model, copy.deepcopy(self.values[self.now]))
        second = outputs(self.model, here)
        return same(first, self.wanted[1 - self.now]), same(second, self.wanted[self.now])


def assigned(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    model.load_state_dict(values, assign=True)


def written(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    model.load_state_dict(values)


def layer_by_layer(model: Stack, values: dict[str, torch.Tensor]) -> None:
    """And the rest last."""
    for name, part in [*model.layers.named_children(), ("embed", model.embed)]:
        start = f"layers.{name}." if name != "embed" else "embed."
        mine = {key[len(start) :]: value for key, value in values.items() if key.startswith(start)}
        part.load_state_dict(mine)
    model.load_state_dict({k: v for k, v in values.items() if k[:4] in ("head", "scal")}, False)


@pytest.mark.parametrize("load", [written, assigned, layer_by_layer])
@pytest.mark.parametrize("slots", [1, 2, N])
def test_what_is_loaded_while_the_host_is_ahead_is_seen_by_the_next_pass_alone(
    sim: SimDevice, here: list[torch.Tensor], slots: int, load: Callable[..., object]
) -> None:
    case = Loads(slots)
    with case.offloaded:
        for seed, adversary in seeds():
            with sim.steps(seed, adversary):
                assert case.right(here, load) == (True, True), (seed, adversary)


def test_without_the_wait_the_pass_before_reads_what_was_loaded(
    sim: SimDevice, here: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin."""
    case, found = Loads(1), set()

    def unsafe(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(case.offloaded._around, "_wait", lambda: None)
            layer_by_layer(model, values)

    with case.offloaded:
        for seed, adversary in seeds():
            with sim.steps(seed, adversary):
                found.add(case.right(here, unsafe))
    assert (False, True) in found


def test_without_any_wait_an_assigned_model_s_old_blocks_cannot_be_given_up(
    sim: SimDevice, here: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: copies that still read them hold them."""
    case = Loads(1)
    outputs(case.model, here)
    torch.accelerator.synchronize()
    with case.offloaded, sim.held(copier(case.offloaded)):
        outputs(case.model, here)
        with monkeypatch.context() as patch:
            patch.setattr(case.offloaded._around, "_wait", lambda: None)
            patch.setattr(AcceleratorStreams, "synchronize", lambda _: None)
            with pytest.raises(RuntimeError, match="copies there have not ended"):
                assigned(case.model, copy.deepcopy(case.values[1]))


# ---- moving and copying

REFUSED: dict[str, Callable[[nn.Module], object]] = {
    "to the device": lambda m: m.to(DEVICE),
    "to the device, by its own method": lambda m: m.simdev(),
    "to a dtype": lambda m: m.half(),
    "to the host": lambda m: m.cpu(),
    "to_empty": lambda m: m.to_empty(device=DEVICE),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
}


@pytest.mark.parametrize("how", REFUSED)
def test_moves_and_copies_are_refused_while_copies_are_under_way(
    sim: SimDevice, here: list[torch.Tensor], how: str
) -> None:
    model = stack(N)
    wanted = outputs(model, INPUTS)
    with offloaded_to(model) as offloaded:
        outputs(model, here)  # the first pass is recorded, by hooks that it takes out
        before, there = picture(model), allocated()
        with sim.held(copier(offloaded)):
            given = outputs(model, here)
            for part in model, model.layers, model.layers[2], model.layers[2].up:
                with pytest.raises(OffloadError, match=r"close\(\) first"):
                    REFUSED[how](part)
            assert not copier(offloaded).query()
        assert same(given, wanted)
        del given
        assert allocated() == there
        assert_unchanged(model, before)
        assert same(outputs(model, here), wanted)


# ---- closing


@pytest.mark.parametrize("where", ["before", "within", "after"])
@pytest.mark.parametrize("layer", [0, 3])
def test_close_in_the_middle_of_a_pass_gives_everything_back(
    sim: SimDevice, here: list[torch.Tensor], layer: int, where: str
) -> None:
    """The rest of that pass has its input on the device and its weights on the host."""
    model = stack(N, uneven=True)
    before, there, locked = picture(model), allocated(), registered(sim)
    wanted = outputs(model, INPUTS)
    for seed, adversary in seeds():
        offloaded = offloaded_to(model)
        part = model.layers[layer]
        hook = {"before": before_run, "after": after_run}.get(where, before_run)
        handle = hook(part.down if where == "within" else part, offloaded.close)
        with sim.steps(seed, adversary):
            with pytest.raises(RuntimeError, match="to be on the same device"):
                outputs(model, here)
            handle.remove()
            assert {p.device.type for p in model.parameters()} == {"cpu"}
            assert registered(sim) == locked
        assert_unchanged(model, before)
        assert same(outputs(model, INPUTS), wanted)
        del offloaded, handle
        gc.collect()
        assert allocated() == there


def test_close_with_copies_under_way_waits_for_them(
    sim: SimDevice, here: list[torch.Tensor]
) -> None:
    model = stack(N, uneven=True)
    before, there, locked = picture(model), allocated(), registered(sim)
    wanted = outputs(model, INPUTS)
    for seed, adversary in seeds():
        with sim.steps(seed, adversary):
            offloaded = offloaded_to(model)
            given = outputs(model, here)
            late = not copier(offloaded).query()
            offloaded.close()
            assert registered(sim) == locked
            assert late or adversary != "copies"
        assert same(given, wanted)
        del given
        assert_unchanged(model, before)
        assert allocated() == there
