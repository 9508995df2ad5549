"""Graphs: what is captured is recorded and not run; replays run it by the captured order alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, error_of, full, is_all, pinned, stream

accelerator = torch.accelerator


@pytest.mark.usefixtures("timing")
def test_a_capture_runs_nothing_and_a_replay_does(sim: SimDevice) -> None:
    a, graph, values = stream(), sim.Graph(), full(1)
    with a, graph:
        assert a.is_capturing()
        values.mul_(2)
        doubled = values + 100
    assert is_all(values, 1)
    for expected in (2, 4, 8):
        graph.replay()
        assert is_all(values, expected)
        assert is_all(doubled, expected + 100)
    values.fill_(5)
    graph.replay()
    assert is_all(doubled, 110)


@pytest.mark.usefixtures("timing")
def test_only_the_captured_streams_are_recorded(sim: SimDevice) -> None:
    a, other, graph, values = stream(), stream(), sim.Graph(), full(1)
    with a, graph, other:
        values.add_(1)
        assert not other.is_capturing()
        other.synchronize()
    assert is_all(values, 2)


@pytest.mark.usefixtures("timing")
def test_a_replay_is_in_order_with_the_replaying_stream(sim: SimDevice) -> None:
    a, b, graph, values = stream(), stream(), sim.Graph(), full(1)
    with a, graph:
        values.mul_(10)
    with sim.held(b) as hold:
        with b:
            values.add_(1)
            graph.replay()
            values.add_(5)
        assert not b.query()
        hold.release()
        b.synchronize()
    assert is_all(values, 25)


@pytest.mark.usefixtures("timing")
def test_a_fork_is_joined_before_the_work_after_the_replay(sim: SimDevice) -> None:
    a, b, graph, slot, out = stream(), stream(), sim.Graph(), full(0), full(0)
    source = pinned(3)
    with a, graph:
        b.wait_event(a.record_event())
        assert b.is_capturing()
        with b:
            slot.copy_(source, non_blocking=True)
        a.wait_event(b.record_event())
        out.copy_(slot)
    assert not b.is_capturing()
    for value in (3, 4):
        source.fill_(value)
        graph.replay()
        seen = out.clone()
        assert is_all(seen, value)


def unfenced(sim: SimDevice, fenced: bool) -> Callable[[int, str], float]:
    """A graph whose fork refills what the capture's stream reads; run it under a seed."""
    a, b, graph, out = stream(), stream(), sim.Graph(), full(0)
    slot, source = full(1), pinned(2)
    with a, graph:
        b.wait_event(a.record_event())
        if not fenced:
            with b:
                slot.copy_(source, non_blocking=True)
        out.copy_(slot + 0)
        if fenced:
            b.wait_event(a.record_event())
            with b:
                slot.copy_(source, non_blocking=True)
        a.wait_event(b.record_event())

    def run(seed: int, adversary: str) -> float:
        slot.fill_(1)
        accelerator.synchronize()
        with sim.steps(seed, adversary):
            graph.replay()
        assert is_all(slot, 2)
        return out[0].item()

    return run


def test_forked_work_is_ordered_by_the_captured_events_alone(sim: SimDevice) -> None:
    broken, whole = unfenced(sim, fenced=False), unfenced(sim, fenced=True)
    assert broken(0, "copies") == 1
    assert broken(0, "compute") == 2
    assert {broken(seed, "random") for seed in range(20)} == {1, 2}
    for adversary in ("random", "compute", "copies"):
        assert {whole(seed, adversary) for seed in range(20)} == {1}


@pytest.mark.usefixtures("timing")
def test_forked_work_is_not_ordered_with_the_stream_that_it_was_captured_from(
    sim: SimDevice,
) -> None:
    a, b, graph, values = stream(), stream(), sim.Graph(), full(1)
    with a, graph:
        b.wait_event(a.record_event())
        with b:
            values.add_(1)
        a.wait_event(b.record_event())
    with sim.held(b), stream() as other:
        graph.replay()
        other.synchronize()
    assert is_all(values, 2)


@pytest.mark.usefixtures("timing")
def test_a_graph_does_not_run_beside_itself(sim: SimDevice) -> None:
    a, b, c, graph, values = stream(), stream(), stream(), sim.Graph(), full(1)
    with a, graph:
        values.add_(1)
    with sim.held(b) as hold:
        with b:
            graph.replay()
        with c:
            graph.replay()
        assert not c.query()
        hold.release()
        accelerator.synchronize()
    assert is_all(values, 3)


@pytest.mark.usefixtures("timing")
def test_memory_of_a_capture_stays_the_graphs(sim: SimDevice) -> None:
    a, graph, values = stream(), sim.Graph(), full(1)
    with a, graph:
        out = ((values + 1) * 2).neg()  # what is between dies in the capture
        kept = out + 0
    del out
    accelerator.synchronize()
    graph.replay()
    assert is_all(kept, -4)
    graph.replay()
    assert is_all(kept, -4)


@pytest.mark.usefixtures("timing")
def test_a_pinned_source_is_read_at_each_replay(sim: SimDevice) -> None:
    a, graph, target, source = stream(), sim.Graph(), full(0), pinned(1)
    with a, graph:
        target.copy_(source, non_blocking=True)
    with sim.held(a) as hold:
        with a:
            graph.replay()
        source.fill_(7)
        hold.release()
        a.synchronize()
    assert is_all(target, 7)


def test_a_module_in_a_graph_equals_the_module(sim: SimDevice) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16)]
    model, inputs = torch.nn.Sequential(*layers), torch.randn(3, 4, 16)
    expected = [model(x) for x in inputs]
    model.to(DEVICE)
    a, graph, x = stream(), sim.Graph(), torch.empty(4, 16, device=DEVICE)
    with a, graph:
        y = model(x)
    for adversary in ("random", "compute", "copies"):
        for seed in range(5):
            with sim.steps(seed, adversary):
                for given, wanted in zip(inputs, expected, strict=True):
                    x.copy_(given, non_blocking=True)
                    graph.replay()
                    assert torch.equal(y.cpu(), wanted)


def test_a_reset_graph_can_capture_again(sim: SimDevice) -> None:
    a, graph, values = stream(), sim.Graph(), full(1)
    with a, graph:
        values.add_(1)
    assert "holds a capture" in error_of(graph.capture_begin)
    graph.reset()
    with a, graph:
        values.add_(10)
    graph.replay()
    assert is_all(values, 11)


def test_a_graph_can_be_written_down(sim: SimDevice, tmp_path: Path) -> None:
    a, b, graph, values = stream(), stream(), sim.Graph(), full(1)
    with a, graph:
        b.wait_event(a.record_event())
        with b:
            values.add_(1)
        a.wait_event(b.record_event())
    graph.debug_dump(str(tmp_path / "graph"))
    assert (tmp_path / "graph").read_text().splitlines() == [
        "part 0: record 0",
        "part 1: wait 0",
        "part 1: aten::add.out",
        "part 1: record 1",
        "part 0: wait 1",
    ]
