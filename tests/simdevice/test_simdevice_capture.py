"""What a capture refuses, and that a fault makes it invalid."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, OTHER, error_of, full, is_all, pinned, stream

accelerator = torch.accelerator


def capture_error(sim: SimDevice, work: Callable[[torch.Stream], object]) -> str:
    """The error that the work meets at once in a capture; the capture must then end in one too."""
    a, graph = stream(), sim.Graph()
    with a:
        graph.capture_begin()
        message = error_of(lambda: work(a))
        end = error_of(graph.capture_end)
        assert not message or "the capture is invalid since an earlier fault" in end
    assert not a.is_capturing()
    assert "has no capture" in error_of(graph.replay)
    return message or end


def test_waiting_for_an_event_from_outside(sim: SimDevice) -> None:
    event = stream().record_event()
    assert "recorded outside the capture" in capture_error(sim, lambda a: a.wait_event(event))


def test_an_event_never_recorded_is_allowed(sim: SimDevice) -> None:
    def work(a: torch.Stream) -> None:
        a.wait_event(torch.Event(device=DEVICE))
        a.wait_event(a.record_event())

    a, graph = stream(), sim.Graph()
    with a, graph:
        work(a)
    graph.replay()


def test_a_fork_that_is_not_joined(sim: SimDevice) -> None:
    values, b = full(1), stream()

    def work(a: torch.Stream) -> None:
        b.wait_event(a.record_event())
        with b:
            values.add_(1)

    message = capture_error(sim, work)
    assert f"stream {b.stream_id} was forked into the capture and not joined" in message
    with b:  # it is an ordinary stream again
        values.add_(1)
    b.synchronize()
    assert is_all(values, 2)


def test_a_fork_that_goes_on_after_its_join(sim: SimDevice) -> None:
    values, b = full(1), stream()

    def work(a: torch.Stream) -> None:
        b.wait_event(a.record_event())
        with b:
            values.add_(1)
            a.wait_event(b.record_event())
            values.add_(1)

    assert "not joined" in capture_error(sim, work)


def test_a_fork_joined_through_another_fork(sim: SimDevice) -> None:
    a, b, c, graph, values = stream(), stream(), stream(), sim.Graph(), full(1)
    with a, graph:
        b.wait_event(a.record_event())
        c.wait_event(b.record_event())
        with c:
            values.add_(1)
        b.wait_event(c.record_event())
        a.wait_event(b.record_event())
    graph.replay()
    assert is_all(values, 2)


def test_an_idle_fork_needs_no_join(sim: SimDevice) -> None:
    a, b, graph = stream(), stream(), sim.Graph()
    with a, graph:
        b.wait_event(a.record_event())
    graph.replay()


Refused = Callable[[torch.Stream, torch.Tensor], object]
REFUSED: dict[str, tuple[str, Refused]] = {
    "a pageable source": ("pageable", lambda _, x: x.copy_(torch.ones(4), non_blocking=True)),
    "a pageable target": ("pageable", lambda _, x: torch.ones(4).copy_(x, non_blocking=True)),
    "a blocking copy": ("makes the host wait", lambda _, x: x.copy_(pinned(1))),
    "a value": ("_local_scalar_dense makes the host wait", lambda _, x: x[0].item()),
    "a shape of data": ("nonzero makes the host wait", lambda _, x: x.nonzero()),
    "random numbers": ("makes the host wait", lambda *_: torch.rand(3, device=DEVICE)),
    "waiting for the stream": ("the host waits for stream", lambda a, _: a.synchronize()),
    "waiting for the device": ("waits for the device", lambda *_: accelerator.synchronize()),
    "asking the stream": ("asks whether a stream is idle", lambda a, _: a.query()),
    "between devices": ("a copy between devices", lambda _, x: x.to(OTHER)),
    "the default stream": (
        "the default stream waits for an event of the capture",
        lambda a, _: torch.Stream(
            stream_id=0, device_index=0, device_type=a.device_type
        ).wait_event(a.record_event()),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_capture_refuses(sim: SimDevice, name: str) -> None:
    values = full(1)
    reason, work = REFUSED[name]
    assert reason in capture_error(sim, lambda a: work(a, values))
    assert is_all(values, 1)


def test_a_replay_in_a_capture(sim: SimDevice) -> None:
    a, graph = stream(), sim.Graph()
    with a, graph:
        pass
    assert "not allowed in a capture: a replay" in capture_error(sim, lambda _: graph.replay())


def test_after_a_fault_the_capture_takes_nothing(sim: SimDevice) -> None:
    values = full(1)

    def work(a: torch.Stream) -> None:
        error_of(a.synchronize)
        values.add_(1)

    assert "invalid since an earlier fault: the host waits" in capture_error(sim, work)
    assert is_all(values, 1)


def test_two_captures_do_not_meet(sim: SimDevice) -> None:
    b, inner = stream(), sim.Graph()

    def work(a: torch.Stream) -> None:
        with b:
            inner.capture_begin()
        b.wait_event(a.record_event())

    a, graph = stream(), sim.Graph()
    with a:
        graph.capture_begin()
        assert "an event of another capture" in error_of(lambda: work(a))
        graph.capture_end()
    with b:
        assert "invalid since an earlier fault" in error_of(inner.capture_end)


def test_events_of_a_capture_mean_nothing_outside(sim: SimDevice) -> None:
    a, graph, event = stream(), sim.Graph(), torch.Event(device=DEVICE)
    with a, graph:
        event.record(a)
        assert "recorded in a capture" in error_of(event.query)
        assert "recorded in a capture" in error_of(event.synchronize)
    assert "of a capture that has ended" in error_of(lambda: stream().wait_event(event))
    event.record(a)  # and is an ordinary event again
    event.synchronize()


def test_captures_begin_on_a_stream_of_their_own_and_end_there(sim: SimDevice) -> None:
    graph, a = sim.Graph(), stream()
    assert "can't begin on the default stream" in error_of(graph.capture_begin)
    with a:
        graph.capture_begin()
        assert "being captured already" in error_of(sim.Graph().capture_begin)
    assert "ends on the stream that it began on" in error_of(graph.capture_end)
    assert not a.is_capturing()


def test_a_graph_stays_on_its_device(sim: SimDevice) -> None:
    graph = sim.Graph()
    with stream(), graph:
        pass
    with accelerator.device_index(1):
        assert "captured on another device" in error_of(graph.replay)


def test_a_graph_that_is_given_up_in_a_capture_ends_it(sim: SimDevice) -> None:
    a, graph = stream(), sim.Graph()
    with a:
        graph.capture_begin()
    del graph
    assert not a.is_capturing()
