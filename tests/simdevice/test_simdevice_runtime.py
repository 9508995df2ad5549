"""The runtime's one accelerator path, on the simulated accelerator: bit-identical under every
seed, for all policies and many rings."""

from __future__ import annotations

import pytest
import torch

from schedule import policies
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE, OTHER
from tests.simdevice.offloads import (
    MORE,
    SAFE,
    Case,
    from_the_start,
    line,
    same,
)

RINGS = ((3, 1), (3, 2), (4, 3), (5, 2), (7, 3))
ROOMY = ((1, 1), (4, 4), (3, 5))
"""With a slot for every module: where weights stay there is nothing to race."""
EACH = tuple(
    (name, *ring)
    for name in SAFE
    for ring in RINGS + ROOMY
    if ring[1] >= policies.named(name).least_slots
)


def seeds(modules: int, slots: int) -> dict[str, int]:
    """By adversary; the two extreme ones leave little to the seed."""
    few = slots >= modules
    return {
        "random": MORE * (12 if few else 56),
        "compute": MORE * (4 if few else 8),
        "copies": MORE * (4 if few else 8),
    }


def test_the_seeds_are_thousands() -> None:
    assert sum(sum(seeds(*ring).values()) for _, *ring in EACH) >= 3000
    assert {name for name, *_ in EACH} == {*policies.NAMED} - {"modular"}


@pytest.mark.parametrize(("policy", "modules", "slots"), EACH)
def test_every_seed_is_bit_identical(sim: SimDevice, policy: str, modules: int, slots: int) -> None:
    case = Case(policy, modules, slots)
    with case.offloaded as offloaded:
        for adversary, number in seeds(modules, slots).items():
            for seed in range(number):
                assert case.right(sim, seed, adversary), case.replay(seed, adversary)
        report, schedule = offloaded.report(), offloaded.schedule
    rounds = 1 + sum(seeds(modules, slots).values())
    assert report.device == DEVICE
    assert report.misses == 0
    assert report.runs == rounds * case.passes * modules
    assert report.preloaded == len(schedule.preload)
    assert report.copies == rounds * 2 * schedule.copies
    assert report.bytes_device < report.bytes_whole or slots >= modules
    if slots < modules:
        assert schedule.copies > 0


@pytest.mark.parametrize("policy", SAFE)
def test_from_the_preload_to_the_close(sim: SimDevice, policy: str) -> None:
    """Nothing waits in between: preloads are still under way when the first pass begins, and
    passes when the model is closed."""
    for ring in ((3, 2), (5, 3)):
        for adversary in ADVERSARIES:
            for seed in range(4 * MORE):
                arguments = (seed, adversary, policy, *ring)
                assert from_the_start(sim, *arguments), line("replay_from_the_start", arguments)


def test_what_a_failing_test_prints_replays_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case("chain", 3, 2)
    case.offloaded.close()
    printed = case.replay(7, "copies")
    fresh = line("replay_from_the_start", (7, "copies", "chain", 3, 2))
    for each in (printed, fresh):
        command, code = each.rstrip('"').split(' "')
        assert command == "python -c"
        exec(code, {})
    assert capsys.readouterr().out == "True\nTrue\n"
    assert "(7, 'copies', 'chain', 3, 2, 'in order', 'one copy stream', 'simdev:0')" in printed


def test_the_copies_are_the_reports_and_the_slots_are_small(sim: SimDevice) -> None:
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    case = Case("balanced", 7, 3)
    with case.offloaded as offloaded:
        torch.accelerator.synchronize()
        report = offloaded.report()
        inputs = sum(x.nbytes for x in case.inputs)
        used = torch.accelerator.memory_allocated() - before - inputs
        assert used == report.bytes_device
        sim.reset_counters()
        assert case.right(sim, 0, "random")
        counters = sim.counters()
        copied = offloaded.report()
        assert counters.copies["host to device"] == copied.copies - report.copies
        assert counters.bytes["host to device"] == copied.bytes_copied - report.bytes_copied
        assert counters.waits == 0
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() - before == inputs


def test_real_threads_too(sim: SimDevice) -> None:
    case = Case("double_buffer", 5, 2)
    with case.offloaded:
        for adversary in ADVERSARIES:
            for seed in range(3):
                with sim.threads(seed, adversary, microseconds=500):
                    assert same(case.outputs(), case.expected())


def test_the_other_device(sim: SimDevice) -> None:
    case = Case("balanced", 5, 2, device=OTHER)
    with case.offloaded as offloaded, torch.accelerator.device_index(1):
        assert offloaded.report().device == OTHER
        for adversary in ADVERSARIES:
            for seed in range(10):
                assert case.right(sim, seed, adversary)


def test_where_data_cannot_be_set_across_devices(sim: SimDevice) -> None:
    with sim.no_shallow_copies():
        case = Case("balanced", 5, 2)
        assert case.model.head.weight.device == torch.device(DEVICE)
        with case.offloaded:
            assert case.right(sim, 0, "random")
        assert case.model.head.weight.device == torch.device("cpu")
