"""Bit-identical under every seed where modules do not run in order, weights change, there are other
streams, or other models at once."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn

import runtime
from proofs.cases import STREAMS
from schedule.audit import audit
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import MORE, SAFE, WIDTH, Case, Layer, batches

SEEDS = {"random": 8 * MORE, "compute": 3 * MORE, "copies": 3 * MORE}
MISSED = {
    "skipped": {"chain", "balanced", "rotating", "double_buffer", "one_ahead"},
    "repeated": {"chain", "balanced", "rotating"},
    "backwards": {"chain", "balanced", "rotating", "double_buffer", "restart", "one_ahead"},
    "updated": {"chain", "balanced", "rotating", "double_buffer"},
    "writing": {"double_buffer"},
}
"""By kind, the policies that reload: not those that bring a module just before it runs, nor, for a
module whose weights change, those that replace it at once."""
CASES = (
    ("chain", 3, 1),
    ("balanced", 5, 2),
    ("rotating", 3, 2),
    ("double_buffer", 4, 3),
    ("restart", 4, 3),
    ("one_ahead", 4, 3),
    ("on_demand", 4, 2),
)
TWO, SHARED = "two copy streams", "copies on the compute stream"


def all_right(sim: SimDevice, case: Case) -> None:
    for adversary, number in SEEDS.items():
        for seed in range(number):
            assert case.right(sim, seed, adversary), case.replay(seed, adversary)


@pytest.mark.parametrize(("policy", "modules", "slots"), CASES)
@pytest.mark.parametrize("kind", MISSED)
def test_what_is_missed_is_reloaded_and_right(
    sim: SimDevice, kind: str, policy: str, modules: int, slots: int
) -> None:
    case = Case(policy, modules, slots, kind)
    with case.offloaded as offloaded:
        all_right(sim, case)
        assert (offloaded.report().misses > 0) == (policy in MISSED[kind])


@pytest.mark.parametrize(
    ("policy", "modules", "slots"), [*CASES, ("chain", 2, 1), ("chain", 3, 2), ("balanced", 5, 3)]
)
def test_a_module_inside_whose_run_another_ran_waits_before_it_resumes(
    sim: SimDevice, policy: str, modules: int, slots: int
) -> None:
    """Its slot was lost and loaded again, by the guard or by the schedule; or just left alone."""
    case = Case(policy, modules, slots, "nested")
    with case.offloaded as offloaded:
        all_right(sim, case)
        with offloaded.trace() as trace:
            case.outputs()
    assert audit(trace).fits
    waits = [one for one in trace.issued if one.boundary.half == "resume"]
    assert len(waits) == case.passes


class Sides(nn.Module):
    """Even layers on the current stream, odd ones on another; it joins them, as it must."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Layer(WIDTH, WIDTH) for _ in range(6))

    def forward(self, x: torch.Tensor, side: torch.Stream | None) -> torch.Tensor:
        even = odd = x
        current = torch.accelerator.current_stream() if side else None
        if side:
            side.wait_stream(current)
        for number, layer in enumerate(self.layers):
            with side if side and number % 2 else nullcontext():
                even, odd = (even, layer(odd)) if number % 2 else (layer(even), odd)
        if current:
            current.wait_stream(side)
            self.alive = even, odd  # until the next pass: both streams read them
        return even + odd


@pytest.mark.parametrize(("policy", "slots"), [("one_ahead", 2), ("balanced", 2), ("chain", 4)])
def test_a_model_may_use_streams_of_its_own(sim: SimDevice, policy: str, slots: int) -> None:
    """To the program there is one compute stream: the modules on them follow each other."""
    plain, model, x = Sides(), Sides(), batches(1)[0]
    with torch.no_grad():
        expected, here = plain(x, None), x.to(DEVICE)
        with runtime.offload(model, list(model.layers), slots=slots, policy=policy, device=DEVICE):
            side = torch.Stream(device=DEVICE)
            torch.accelerator.synchronize()
            for adversary in ADVERSARIES:
                for seed in range(12 * MORE):
                    with sim.steps(seed, adversary):
                        given = model(here, side)
                        torch.accelerator.synchronize()
                    assert torch.equal(given.cpu(), expected), (adversary, seed)


def test_what_a_module_writes_is_in_the_host_masters(sim: SimDevice) -> None:
    case = Case("chain", 3, 2, "writing")
    with case.offloaded:
        for adversary in ADVERSARIES:
            assert case.right(sim, 1, adversary)
            masters = [layer.weight for layer in case.model.layers]
            for master, layer in zip(masters, case.plain.layers, strict=True):
                assert master.device.type == "cpu"
                assert master.equal(layer.weight)


@pytest.mark.parametrize("kind", ["in order", "skipped", "repeated", "updated", "writing"])
@pytest.mark.parametrize("streams", [TWO, SHARED])
def test_other_copy_streams(sim: SimDevice, streams: str, kind: str) -> None:
    for policy in SAFE:
        case = Case(policy, 5, 3 if kind == "in order" else 2, kind, streams)
        with case.offloaded as offloaded:
            assert offloaded.program.streams == STREAMS[streams]
            for adversary in ADVERSARIES:
                for seed in range(3 * MORE):
                    assert case.right(sim, seed, adversary), case.replay(seed, adversary)


@pytest.mark.parametrize("kind", ["in order", "skipped", "writing"])
def test_two_models_at_once(sim: SimDevice, kind: str) -> None:
    """Each has slots and copy streams of its own, and they share the compute stream."""
    one, other = Case("balanced", 5, 2, kind), Case("rotating", 3, 2)
    with one.offloaded, other.offloaded:
        for adversary, number in SEEDS.items():
            for seed in range(number):
                with sim.steps(seed, adversary):
                    given = [(case.outputs(), case) for case in (one, other, one)]
                for outputs, case in given:
                    expected = case.expected()
                    for a, b in zip(outputs, expected, strict=True):
                        assert a.cpu().equal(b), (seed, adversary, case.name)
        assert (one.offloaded.report().misses > 0) == (kind == "skipped")
        assert other.offloaded.report().misses == 0
