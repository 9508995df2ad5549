"""Streams are first in, first out; events stand for their latest record at the time of the call."""

from __future__ import annotations

import threading

import pytest
import torch

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE, OTHER, error_of, full, is_all, pinned, stream

accelerator = torch.accelerator


@pytest.mark.usefixtures("timing")
def test_a_stream_is_first_in_first_out() -> None:
    a, values = stream(), full(1)
    with a:
        for step in range(20):
            values.mul_(2).sub_(step)
    a.synchronize()
    expected = 1.0
    for step in range(20):
        expected = expected * 2 - step
    assert is_all(values, expected)


@pytest.mark.usefixtures("timing")
def test_the_host_runs_ahead(sim: SimDevice) -> None:
    a, values = stream(), full(0)
    with sim.held(a) as hold:
        with a:
            for _ in range(50):
                values.add_(1)
        assert not a.query()
        assert is_all(values, 0)
        hold.release()
        a.synchronize()
    assert a.query()
    assert is_all(values, 50)


@pytest.mark.usefixtures("timing")
def test_streams_are_not_ordered_among_each_other(sim: SimDevice) -> None:
    a, b, values, copy = stream(), stream(), full(1), full(0)
    with sim.held(a):
        with a:
            values.fill_(2)
        with b:
            copy.copy_(values)
        b.synchronize()
    a.synchronize()
    assert is_all(copy, 1)
    assert is_all(values, 2)


@pytest.mark.usefixtures("timing")
def test_an_event_orders_two_streams(sim: SimDevice) -> None:
    a, b, values, copy = stream(), stream(), full(1), full(0)
    with sim.held(a) as hold:
        with a:
            values.fill_(2)
        b.wait_event(a.record_event())
        with b:
            copy.copy_(values)
        assert not b.query()
        hold.release()
        b.synchronize()
    assert is_all(copy, 2)


@pytest.mark.usefixtures("timing")
def test_a_wait_takes_the_record_that_was_last_at_the_call(sim: SimDevice) -> None:
    a, b, c, values, early, late = stream(), stream(), stream(), full(0), full(0), full(0)
    event = torch.Event(device=DEVICE)
    with a:
        values.fill_(1)
    event.record(a)
    a.synchronize()
    b.wait_event(event)  # means the first record
    with sim.held(a) as hold:
        with a:
            values.fill_(2)
        event.record(a)
        with b:
            early.copy_(values)
        b.synchronize()  # the second record does not lengthen the wait
        c.wait_event(event)  # means the second record
        with c:
            late.copy_(values)
        assert not c.query()
        hold.release()
        c.synchronize()
    assert is_all(early, 1)
    assert is_all(late, 2)


@pytest.mark.usefixtures("timing")
def test_a_later_record_does_not_shorten_a_wait(sim: SimDevice) -> None:
    a, b, c, values, copy = stream(), stream(), stream(), full(1), full(0)
    event = torch.Event(device=DEVICE)
    with sim.held(a) as hold:
        with a:
            values.fill_(2)
        event.record(a)
        b.wait_event(event)
        event.record(c)
        event.synchronize()  # this record is of an idle stream
        assert event.query()
        with b:
            copy.copy_(values)
        assert not b.query()
        hold.release()
        b.synchronize()
    assert is_all(copy, 2)


@pytest.mark.usefixtures("timing")
def test_an_event_never_recorded_stands_for_nothing(sim: SimDevice) -> None:
    a, event = stream(), torch.Event(device=DEVICE)
    assert event.query()
    with sim.held(a):
        stream().wait_event(event)
        event.synchronize()


@pytest.mark.usefixtures("timing")
def test_an_event_says_when_the_device_got_there(sim: SimDevice) -> None:
    a, values = stream(), full(0)
    start = torch.Event(device=DEVICE, enable_timing=True)
    end = torch.Event(device=DEVICE, enable_timing=True)
    start.record(a)
    with sim.held(a) as hold:
        with a:
            values.add_(1)
        end.record(a)
        assert not end.query()
        hold.release()
        end.synchronize()
    assert end.query()
    assert 0 <= start.elapsed_time(end) < 60_000


@pytest.mark.usefixtures("timing")
def test_the_context_of_a_stream_makes_it_current_and_no_other() -> None:
    a, before = stream(), accelerator.current_stream()
    with a:
        assert accelerator.current_stream() == a
        assert accelerator.current_stream(OTHER).stream_id == 0
    assert accelerator.current_stream() == before


@pytest.mark.usefixtures("sim")
def test_streams_come_from_a_pool_of_32() -> None:
    made = [stream() for _ in range(33)]
    assert len({one.stream_id for one in made}) == 32
    assert made[0] == made[32]


@pytest.mark.usefixtures("timing")
def test_host_threads_have_current_streams_of_their_own() -> None:
    results: dict[int, float] = {}

    def work(number: int) -> None:
        with torch.no_grad(), stream():
            values = torch.zeros(16, device=DEVICE)
            for _ in range(50):
                values.add_(number)
            results[number] = values.sum().item()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: 50 * 16 * number for number in range(6)}


# ---- two devices


@pytest.mark.usefixtures("timing")
def test_devices_have_streams_of_their_own(sim: SimDevice) -> None:
    assert accelerator.device_count() == 2
    values = full(1, device=OTHER)
    assert accelerator.current_device_index() == 0
    with sim.held(accelerator.current_stream(DEVICE)):
        values.add_(1)
        accelerator.synchronize(OTHER)
        with accelerator.device_index(1):
            here = torch.ones(2, device="simdev")
            assert here.device == torch.device(OTHER)
    assert is_all(values, 2)


@pytest.mark.usefixtures("timing")
def test_a_copy_between_devices_is_in_order_with_both(sim: SimDevice) -> None:
    source, target = full(1), full(0, device=OTHER)
    with sim.held(accelerator.current_stream(DEVICE)) as hold:
        source.fill_(2)
        target.copy_(source)
        target.add_(1)
        source.fill_(9)
        hold.release()
    assert is_all(target, 3)
    assert is_all(source, 9)


@pytest.mark.usefixtures("timing")
def test_events_belong_to_one_device() -> None:
    event = torch.Event(device=DEVICE)
    event.record(stream())
    there = stream(OTHER)
    assert "to wait for an event of simdev:0" in error_of(lambda: there.wait_event(event))
    assert "an event of simdev:0 was recorded on" in error_of(lambda: event.record(there))


@pytest.mark.usefixtures("sim")
def test_there_are_two_devices_and_no_third() -> None:
    assert "no device 2" in error_of(lambda: torch.ones(1, device="simdev:2"))
    assert "no device 5" in error_of(lambda: torch.Stream(device="simdev:5"))


# ---- no hang


def test_steps_report_a_deadlock(sim: SimDevice) -> None:
    a, values = stream(), full(0)
    with sim.steps(seed=0), sim.held(a) as hold:
        with a:
            values.add_(1)
        message = error_of(a.synchronize)
        hold.release()
        a.synchronize()
    assert "deadlock: no queue can go on" in message
    assert is_all(values, 1)


def test_the_report_says_who_waits(sim: SimDevice) -> None:
    a = stream()
    told = f"stream {a.stream_id} of simdev:0: 2 tasks"
    with sim.steps(seed=0), sim.held(a), pytest.raises(RuntimeError, match=told):
        a.synchronize()


def test_threads_report_a_deadlock_when_patience_ends(sim: SimDevice) -> None:
    a = stream()
    sim.patience(0.1)
    with sim.threads(seed=0), sim.held(a) as hold:
        message = error_of(a.synchronize)
        hold.release()
        sim.patience(60)
    assert "deadlock: no task ended in 0.1 s" in message


@pytest.mark.usefixtures("timing")
def test_pinned_copies_follow_events_too(sim: SimDevice) -> None:
    a, b, target, out = stream(), stream(), full(0), full(0)
    source = pinned(5)
    with sim.held(a) as hold:
        with a:
            target.copy_(source, non_blocking=True)
        b.wait_event(a.record_event())
        with b:
            out.copy_(target)
        hold.release()
        b.synchronize()
    assert is_all(out, 5)
