"""What a profile measures, by a clock that stands still unless something takes time."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import device, link
from runtime.device import Inline
from runtime.link import fit
from runtime.meter import Timed, covered, medians
from runtime.profile import ESTIMATED, profiled
from schedule.costs import Costs
from schedule.errors import CostsError, OffloadError
from tests.runtime.models import assert_unchanged, batches, block_bytes, outputs, picture, stack

BYTE, LATENCY = 2, 700
"""Nanoseconds of a copy, of each byte and of it as a whole."""


@dataclass
class Clock:
    """In nanoseconds. copied: each copy, as its bytes and the address that it reads."""

    now: int = 0
    copied: list[tuple[int, int]] = field(default_factory=list)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock, plain = Clock(), device._copy

    def copy(pieces: device.Pieces) -> None:
        plain(pieces)
        size = sum(target.numel() for target, _ in pieces)
        clock.copied.append((size, pieces[0][1].data_ptr()))
        clock.now += BYTE * size + LATENCY

    monkeypatch.setattr(device, "time", SimpleNamespace(perf_counter_ns=lambda: clock.now))
    monkeypatch.setattr(device, "_copy", copy)
    monkeypatch.setattr(link, "LARGEST", 1 << 16)
    return clock


class Slow(nn.Module):
    """Takes so long by the clock; each time longer by ``more``."""

    def __init__(self, clock: Clock, took: int, more: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(took))
        self.clock, self.took, self.more = clock, took, more

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.clock.now += self.took
        self.took += self.more
        return x


class Model(nn.Module):
    """Slow layers; before each, what stays takes 10, 20, 30 and so on, and 5 after the last."""

    def __init__(self, clock: Clock, times: list[int], more: int = 0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Slow(clock, time, more) for time in times)
        self.clock = clock

    def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            self.clock.now += 10 * (number + 1)
            x = layer(x)
            if twice:
                x = layer(x)
        self.clock.now += 5
        return x


X = torch.zeros(1)


def test_runs_and_what_is_between_are_told_apart(clock: Clock) -> None:
    model = Model(clock, [100, 300, 200])
    before = picture(model)
    found = profiled(
        model, inputs={"one": (X,), "two": {"x": X, "twice": True}}, weights={"two": 3.0}
    )
    one, two = found.costs.workloads
    assert (one.name, one.weight, two.name, two.weight) == ("one", 1.0, "two", 3.0)
    assert one.compute == (100, 300, 200)
    assert one.between == two.between == (10, 20, 30, 5)
    assert two.compute == (200, 600, 400)
    assert found.alone == (one.compute, two.compute)  # a CPU has no copy beside it
    assert_unchanged(model, before)


class Decoder(Model):
    """Runs its layers from the last but one to the first; the last is an encoder, run before."""

    def forward(self, x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        del twice
        for layer in reversed(self.layers[:-1]):
            x = layer(x)
        return x


def test_all_workloads_are_in_the_order_that_is_found(clock: Clock) -> None:
    model = Decoder(clock, [100, 300, 200])
    costs = runtime.profile(model, inputs={"encode": lambda: model.layers[2](X), "decode": (X,)})
    assert [module.name for module in costs.modules] == ["layers.2", "layers.1", "layers.0"]
    found = {one.name: one.compute for one in costs.workloads}
    assert found == {"encode": (200, 0, 0), "decode": (0, 300, 100)}


def test_the_median_of_the_passes_counts(clock: Clock) -> None:
    (workload,) = profiled(Model(clock, [100], more=10), inputs={"x": (X,)}).costs.workloads
    # One pass warms up; of seven more it is the fourth.
    assert workload.compute == (100 + 10 + 3 * 10,)


def test_the_copies_of_a_machine_are_a_line(clock: Clock) -> None:
    found = profiled(Model(clock, [100]), inputs={"x": (X,)}).costs.link
    assert (found.bandwidth, found.latency, found.streams) == (10**9 // BYTE, LATENCY, 0)
    found_at: dict[int, list[int]] = {}
    for size, address in clock.copied:
        found_at.setdefault(size, []).append(address)
    assert {1 << 16, 1 << 15, 1 << 14, 1 << 12, 1 << 10} <= found_at.keys()
    assert len(set(found_at[1 << 10])) == len(found_at[1 << 10]) == 2 * link.ROUNDS  # in no cache


def test_without_inputs_nothing_runs(clock: Clock) -> None:
    costs = runtime.profile(Model(clock, [100, 300]))
    (workload,) = costs.workloads
    assert workload.name == ESTIMATED
    assert workload.between == (0, 0, 0)
    # A copy within the device reads and writes each byte.
    size = (1 << 16) + 512
    rate = round(2 * size * 10**9 / (BYTE * size + LATENCY))
    assert workload.compute == tuple(4 * number * 10**9 // rate for number in (100, 300))


def test_a_model_without_values_can_be_estimated(clock: Clock) -> None:
    del clock
    with torch.device("meta"):
        empty = stack(3, uneven=True)
    found, wanted = runtime.profile(empty), runtime.profile(stack(3, uneven=True))
    assert found == wanted
    with pytest.raises(OffloadError, match="is on the meta device and has no values"):
        runtime.profile(empty, inputs={"decode": (X,)})


def test_what_is_said_of_the_model(clock: Clock) -> None:
    del clock
    model = stack(3, uneven=True)
    costs = runtime.profile(model)
    assert costs.sizes == tuple(block_bytes(layer) for layer in model.layers)
    assert costs.resident == 2 * (8 * 8 + 8) * 4 + 8 * 4
    assert costs.device == f"cpu, {torch.get_num_threads()} threads"
    assert costs.torch == torch.__version__
    assert costs.model.startswith("Stack ")
    assert runtime.profile(stack(3, uneven=True, seed=1)).model == costs.model
    assert runtime.profile(stack(3)).model != costs.model
    bare = runtime.profile(list(model.layers))
    assert bare.model.startswith("3 modules ")
    assert [module.name for module in bare.modules] == [f"modules[{i}]" for i in range(3)]
    assert (bare.sizes, bare.resident) == (costs.sizes, 0)


def test_a_list_of_modules_is_run_by_a_function(clock: Clock) -> None:
    model = Model(clock, [100, 300])
    costs = runtime.profile(list(model.layers), inputs={"decode": lambda: model(X)})
    assert costs.workloads[0].compute == (100, 300)
    assert costs.workloads[0].between == (10, 20, 5)


def test_the_model_is_right_after_a_profile() -> None:
    model = stack(3)
    wanted, before = outputs(model, batches(2)), picture(model)
    costs = runtime.profile(model, inputs={"decode": (batches(1)[0],)})
    assert isinstance(costs, Costs)
    assert all(torch.equal(a, b) for a, b in zip(outputs(model, batches(2)), wanted, strict=True))
    assert_unchanged(model, before)
    assert min(costs.workloads[0].compute) > 0
    assert 10**7 < costs.link.bandwidth < 10**13


def test_in_inference_mode(clock: Clock) -> None:
    model = Model(clock, [100, 300])
    with torch.inference_mode():
        assert runtime.profile(model, inputs={"x": (X,)}).workloads[0].compute == (100, 300)
        assert runtime.profile(model).workloads[0].name == ESTIMATED


def test_an_interrupt_leaves_the_model_as_it_was(clock: Clock) -> None:
    model = Model(clock, [100, 300])
    before, runs = picture(model), 4  # in a second workload, which is measured by then

    def run() -> None:
        nonlocal runs
        runs -= 1
        model.layers[0](X)
        if runs == 0:
            raise KeyboardInterrupt
        model.layers[1](X)

    with pytest.raises(KeyboardInterrupt):
        runtime.profile(model, inputs={"x": (X,), "y": run})
    assert runs == 0
    assert_unchanged(model, before)


def test_a_workload_is_one_pass(clock: Clock) -> None:
    model = Model(clock, [100, 300])
    before = picture(model)
    with pytest.raises(OffloadError, match=r"inputs\['x'\] calls the model 2 times"):
        runtime.profile(model, inputs={"x": lambda: (model(X), model(X))})
    with pytest.raises(OffloadError, match=r"inputs\['x'\] runs none of the 2 modules"):
        runtime.profile(list(model.layers), inputs={"x": lambda: None})
    assert_unchanged(model, before)


def test_when_the_model_fails_it_is_unchanged() -> None:
    model = stack(3)
    before = picture(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        runtime.profile(model, inputs={"decode": (torch.zeros(1, 3),)})
    assert_unchanged(model, before)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no dict": ({"inputs": (X,)}, "inputs must be a dict"),
    "empty": ({"inputs": {}}, "inputs must be a dict"),
    "a tensor": ({"inputs": {"decode": X}}, r"inputs\['decode'\] is a Tensor"),
    "a weight of none": (
        {"inputs": {"decode": (X,)}, "weights": {"prefill": 1.0}},
        r"weights has 'prefill', which is none of inputs: \['decode'\]",
    ),
    "no weights": ({"inputs": {"decode": (X,)}, "weights": 5}, "weights is a int"),
    "weights alone": ({"weights": {"decode": 1.0}}, "weights go with inputs"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    options, message = BAD[name]
    with pytest.raises(OffloadError, match=message):
        runtime.profile(stack(3), **options)


@pytest.mark.parametrize(
    ("name", "weight", "message"),
    [("x", -1.0, r"\[0\].weight: -1.0 is no"), ("", 1.0, r"\[0\].name: ''"), ("x", 0, "is 0")],
)
def test_what_no_costs_can_have_is_said_before_anything_runs(
    name: str, weight: float, message: str
) -> None:
    with pytest.raises(CostsError, match=f"workloads.*{message}"):
        runtime.profile(stack(3), inputs={name: lambda: 1 / 0}, weights={name: weight})


def test_a_list_of_modules_has_no_arguments() -> None:
    with pytest.raises(OffloadError, match="a list of modules can't be called"):
        runtime.profile(list(stack(3).layers), inputs={"decode": (X,)})


# ---- numbers


@pytest.mark.parametrize(("rate", "latency"), [(10**9, 0), (5 * 10**8, 700), (25 * 10**9, 12_000)])
def test_a_line_is_found(rate: int, latency: int) -> None:
    sizes = [1 << shift for shift in range(20, 27)]
    points = [(size, latency + size * 10**9 // rate) for size in sizes]
    bandwidth, found = fit(points)
    assert bandwidth == pytest.approx(rate, rel=1e-5)
    assert found == pytest.approx(latency, abs=2)


def test_a_line_that_begins_below_zero_goes_through_it() -> None:
    assert fit([(1000, 1000), (2000, 3000)]) == (round(13e9 / 15), 0)
    assert fit([(1000, 1000)]) == (10**9, 0)
    assert fit([(1000, 2000), (2000, 2000)]) == (round(1e9 / 1.2), 0)  # as quick: no line at all


def test_runs_that_the_load_did_not_cover_count_only_if_there_are_no_others() -> None:
    passes = [
        Timed((10, 1), (0, 0, 0), (True, False)),
        Timed((30, 3), (0, 0, 0), (False, False)),
        Timed((20, 2), (0, 0, 0), (True, False)),
    ]
    assert covered(passes) == (15, 2)
    assert medians([one.compute for one in passes]) == (20, 2)


def test_a_moment_on_a_cpu() -> None:
    first, second = Inline(), Inline()
    assert first.query()
    assert 0 <= first.elapsed_time(second) < 1000
