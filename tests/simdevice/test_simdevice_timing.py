"""Seeds and adversaries: a missing fence shows, the same way each time; a whole program never
fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE, full, is_all, pinned, stream

FENCES = ("run before copy", "copy before run", "copy before copy")
STEPS = 12


class Ring:
    """Two slots, refilled by one stream (by two, where copies race) and read by another."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.weights = [torch.randn(8, 8).pin_memory() for _ in range(5)]
        self.wrong = torch.full((8, 8), 100.0).pin_memory()
        self.slots = [torch.zeros(8, 8, device=DEVICE) for _ in range(2)]
        self.copier, self.second = stream(), stream()
        x = torch.eye(8)
        self.first = x.to(DEVICE)
        for step in range(STEPS):
            x = torch.tanh(x @ self.weights[step % 5])
        self.expected = x
        torch.accelerator.synchronize()

    def run(self, missing: str | None = None) -> torch.Tensor:
        """The result, with one kind of fence left out."""
        compute, x = torch.accelerator.current_stream(), self.first
        ran, landed = [None, None], [None, None]

        def refill(step: int) -> None:
            slot = step % 2
            for copier in (self.copier, self.second):
                if ran[slot] is not None and missing != "run before copy":
                    copier.wait_event(ran[slot])
            with self.second:  # a prefetch that turned out to be wrong
                self.slots[slot].copy_(self.wrong, non_blocking=True)
            if missing != "copy before copy":
                self.copier.wait_event(self.second.record_event())
            with self.copier:
                self.slots[slot].copy_(self.weights[step % 5], non_blocking=True)
            landed[slot] = self.copier.record_event()

        refill(0)
        refill(1)
        for step in range(STEPS):
            if missing != "copy before run":
                compute.wait_event(landed[step % 2])
            x = torch.tanh(x @ self.slots[step % 2])
            ran[step % 2] = compute.record_event()
            if step + 2 < STEPS:
                refill(step + 2)
        torch.accelerator.synchronize()
        return x.cpu()


@pytest.fixture(scope="module")
def ring(sim: SimDevice) -> Ring:
    del sim  # it must be there
    with torch.no_grad():
        return Ring()


def wrong(ring: Ring, sim: SimDevice, missing: str | None, adversary: str, seeds: int) -> int:
    """In how many seeds the result is wrong."""
    count = 0
    for seed in range(seeds):
        with sim.steps(seed, adversary):
            count += not torch.equal(ring.run(missing), ring.expected)
    return count


@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_a_whole_program_is_right_under_every_seed(
    sim: SimDevice, ring: Ring, adversary: str
) -> None:
    assert wrong(ring, sim, None, adversary, 30) == 0


@pytest.mark.parametrize("missing", FENCES)
def test_a_missing_fence_shows_in_steps(sim: SimDevice, ring: Ring, missing: str) -> None:
    counts = {adversary: wrong(ring, sim, missing, adversary, 10) for adversary in ADVERSARIES}
    assert counts["random"] > 0
    assert counts["compute" if missing == "run before copy" else "copies"] > 0 or (
        missing == "copy before copy"
    )


@pytest.mark.parametrize("missing", [None, *FENCES])
def test_a_missing_fence_shows_in_threads(sim: SimDevice, ring: Ring, missing: str | None) -> None:
    adversary = "compute" if missing == "run before copy" else "copies"
    if missing == "copy before copy":
        adversary = "random"
    count = 0
    for seed in range(4):
        with sim.threads(seed, adversary, microseconds=2000):
            count += not torch.equal(ring.run(missing), ring.expected)
    assert count == 0 if missing is None else count > 0


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.numpy().tobytes()


@pytest.mark.parametrize("torn", [False, True])
def test_a_seed_is_one_schedule(sim: SimDevice, ring: Ring, torn: bool) -> None:
    """A broken program is wrong in the same way each time, and differently for other seeds."""

    def results() -> list[bytes]:
        found = []
        for seed in range(15):
            with sim.steps(seed, torn=torn):
                found.append(bits(ring.run("run before copy")))
        return found

    first = results()
    assert results() == first
    assert len(set(first)) > 5


def test_a_seed_does_not_hang_on_what_ran_before(sim: SimDevice) -> None:
    """Nor on which streams of the pool the program gets, nor on when garbage is collected."""
    found = set()
    for used in range(5):
        for _ in range(7 * used):
            stream()
        with sim.steps(seed=used):
            garbage = [full(1) for _ in range(used)]
        with sim.steps(seed=4):
            ring = Ring()
            del garbage
            found.add(bits(ring.run("run before copy")))
    assert len(found) == 1


REPLAY = """
import hashlib, torch
from tests.simdevice.device import start
from tests.simdevice.test_simdevice_timing import Ring
torch.set_num_threads(1)
with torch.no_grad(), start().steps(seed=4):
    ring = Ring()
    print(hashlib.sha256(ring.run("run before copy").numpy().tobytes()).hexdigest())
"""


def test_a_seed_gives_the_same_in_another_process(sim: SimDevice) -> None:
    import hashlib

    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", REPLAY], cwd=root, capture_output=True, text=True, check=True
    )
    with sim.steps(seed=4):
        ring = Ring()
        here = hashlib.sha256(bits(ring.run("run before copy"))).hexdigest()
    assert done.stdout.split()[-1] == here


def test_the_adversary_says_who_is_late(sim: SimDevice) -> None:
    for adversary, seen in (("compute", 2), ("copies", 1)):
        a, b, values, out, source = stream(), stream(), full(1), full(0), pinned(2)
        with sim.steps(seed=0, adversary=adversary):
            with a:
                torch.add(values, 0, out=out)
            with b:
                values.copy_(source, non_blocking=True)
        assert is_all(out, seen)


def test_half_a_copy_can_be_seen(sim: SimDevice) -> None:
    def seen(torn: bool) -> set[tuple[float, ...]]:
        found = set()
        for seed in range(40):
            a, b, values, out, source = stream(), stream(), full(1), full(0), pinned(2)
            with sim.steps(seed, torn=torn):
                with b:
                    values.copy_(source, non_blocking=True)
                with a:
                    torch.add(values, 0, out=out)
            found.add(tuple(out.tolist()))
        return found

    assert seen(torn=False) == {(1, 1, 1, 1), (2, 2, 2, 2)}
    assert (2, 2, 1, 1) in seen(torn=True)


def test_timings_nest(sim: SimDevice) -> None:
    a, values = stream(), full(0)
    with sim.steps(seed=0, adversary="compute"):
        with sim.threads(seed=0, microseconds=0), a:
            values.add_(1)
        with a:
            values.add_(1)
        assert is_all(values, 1)  # late again; nothing made it run
    assert is_all(values, 2)


def milliseconds(call: Callable[[], object]) -> float:
    """Of the current stream, until it has done what the call gives it."""
    first, last = (torch.Event(device=DEVICE, enable_timing=True) for _ in range(2))
    first.record()
    call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def test_known_times_are_taken_in_threads_alone(sim: SimDevice) -> None:
    """None takes less; how much more is the machine's affair."""
    source, target = pinned(1, 1000), full(0, 1000)  # 4000 bytes
    with stream():
        graph = sim.Graph()
        with graph:
            sim.busy(7000)
        with sim.paced(bandwidth=1_000_000, latency=2000):
            assert milliseconds(lambda: target.copy_(source, non_blocking=True)) >= 6
            assert milliseconds(lambda: sim.busy(5000)) >= 5
            assert milliseconds(graph.replay) >= 7
        assert is_all(target, 1)
        hour = 3_600_000_000
        with sim.steps(seed=0):
            sim.busy(hour)
        with pytest.raises(ZeroDivisionError), sim.paced(bandwidth=100):
            raise ZeroDivisionError
        with sim.threads(seed=0):  # which knows no link: by that one it would take 40 s
            assert milliseconds(lambda: target.copy_(source, non_blocking=True)) < 20_000


@pytest.mark.parametrize(("bandwidth", "latency"), [(0, 0), (1, -1)])
def test_a_link_that_can_not_be_is_refused(sim: SimDevice, bandwidth: int, latency: int) -> None:
    with pytest.raises(ValueError, match=f"{bandwidth}, {latency}"), sim.paced(bandwidth, latency):
        pass
