"""The doctor finds nothing wrong with the simulated device, and each fault that is put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import device, doctor, fences
from runtime.findings import FAIL, OK, Check, Finding
from runtime.interpreter import Interpreter
from runtime.report import device_memory
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE

Patch = pytest.MonkeyPatch


def found_by(check: Check) -> Finding:
    return check(torch.device(DEVICE))  # which is unknown until it is started


@pytest.fixture(autouse=True)
def _behind_the_host(sim: SimDevice, monkeypatch: Patch) -> Iterator[None]:
    """How long something takes is the seed's choice here, not a matter of its size."""
    monkeypatch.setattr(fences, "LARGE", 1 << 12)
    monkeypatch.setattr(fences, "SECONDS", 1e-4)
    monkeypatch.setattr(doctor, "WIDTH", 64)
    monkeypatch.setattr(doctor, "COPIED", 1 << 16)
    with sim.steps(seed=0):
        yield


@pytest.mark.parametrize("check", doctor.CHECKS, ids=lambda check: check.__name__)
def test_nothing_is_wrong_with_the_device(check: Check) -> None:
    found = found_by(check)
    assert found.verdict == OK, found


def test_nor_with_threads(sim: SimDevice) -> None:
    checks = (fences.host_waits, fences.streams_wait, fences.latest_record)
    with sim.threads(seed=0):
        assert [found_by(check).verdict for check in checks] == [OK] * 3


# ---- events that hold nobody back


class Event:
    """A real event, and what a faulty one makes of its waits. host, stream: whether they wait.
    again: whether it is recorded more than once."""

    def __init__(self, host: bool, stream: bool, again: bool) -> None:
        self.real, self.records = torch.Event(device=DEVICE), 0
        self.host, self.stream, self.again = host, stream, again

    def synchronize(self) -> None:
        if self.host:
            self.real.synchronize()


class Stream(torch.Stream):
    """Knows such events."""

    def record_event(self, event: Event) -> Event:
        if event.again or not event.records:
            super().record_event(event.real)
        event.records += 1
        return event

    def wait_event(self, event: Event) -> None:
        if event.stream:
            super().wait_event(event.real)


@pytest.fixture
def events(monkeypatch: Patch) -> Callable[..., None]:
    """Let the runtime's events be of this kind."""

    def make(host: bool = True, stream: bool = True, again: bool = True) -> None:
        current = torch.accelerator.current_stream

        def ours(of: torch.device) -> Stream:
            c = current(of)
            return Stream(
                stream_id=c.stream_id, device_index=c.device_index, device_type=c.device_type
            )

        class Torch:
            """What the runtime's streams take from torch."""

            Event = staticmethod(lambda device: Event(host, stream, again))  # noqa: ARG005
            accelerator = type("", (), {"current_stream": staticmethod(ours)})

            def __getattr__(self, name: str) -> Any:
                return getattr(torch, name)

        replaced = Torch()
        replaced.Stream = Stream
        replaced.accelerator.current_accelerator = torch.accelerator.current_accelerator
        monkeypatch.setattr(device, "torch", replaced)

    return make


def test_events_that_are_as_they_should_be_are_found_so(events: Callable[..., None]) -> None:
    events()
    checks = (fences.host_waits, fences.streams_wait, fences.latest_record)
    assert [found_by(check).verdict for check in checks] == [OK] * 3


def test_a_placeholder_event_is_found(events: Callable[..., None]) -> None:
    """vllm-ascend#10251: an event whose waits returned at once."""
    events(host=False)
    assert found_by(fences.host_waits) == Finding(
        "host waits",
        FAIL,
        "the host waited for an event and went on before the copy that it stands for had landed: "
        "this back end's events hold nobody back",
    )
    assert found_by(fences.streams_wait).verdict == OK


def test_an_event_that_holds_no_stream_back_is_found(events: Callable[..., None]) -> None:
    events(stream=False)
    found = found_by(fences.streams_wait)
    assert found.verdict == FAIL
    assert found.sentence.startswith("the compute stream waited for a copy's event, and read the")
    assert found_by(fences.host_waits).verdict == OK


def test_an_event_that_is_recorded_once_is_found(events: Callable[..., None]) -> None:
    events(again=False)
    found = found_by(fences.latest_record)
    assert found.verdict == FAIL
    assert "a wait for it took an older record" in found.sentence


# ---- copies


@pytest.fixture
def copies(monkeypatch: Patch) -> Callable[[Callable[..., object]], None]:
    """Let the runtime copy by this."""

    def patch(copy: Callable[..., object]) -> None:
        monkeypatch.setattr(device, "_copy", lambda pieces: [copy(*pair) for pair in pieces])

    return patch


def plain(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source, non_blocking=True)


def test_copies_that_land_after_their_event_are_found(
    copies: Callable[..., None],
) -> None:
    hidden = torch.Stream(device=DEVICE)

    def late(target: torch.Tensor, source: torch.Tensor) -> None:
        hidden.wait_stream(torch.accelerator.current_stream(DEVICE))
        with hidden:
            plain(target, source)

    copies(late)
    assert found_by(fences.host_waits).verdict == FAIL
    assert found_by(fences.streams_wait).verdict == FAIL


def test_copies_that_overtake_the_run_before_them_are_found(copies: Callable[..., None]) -> None:
    hidden = torch.Stream(device=DEVICE)

    def early(target: torch.Tensor, source: torch.Tensor) -> None:
        with hidden:
            plain(target, source)
        torch.accelerator.current_stream(DEVICE).wait_stream(hidden)

    copies(early)
    assert "overwrote the slot while it was read" in found_by(fences.streams_wait).sentence


def test_copies_that_block_the_host_are_found(copies: Callable[..., None]) -> None:
    def blocking(target: torch.Tensor, source: torch.Tensor) -> None:
        plain(target, source)
        torch.accelerator.current_stream(DEVICE).synchronize()

    copies(blocking)
    assert "block the host until they have landed" in found_by(fences.copies_return).sentence


def test_copies_that_wait_for_all_compute_are_found(copies: Callable[..., None]) -> None:
    compute = torch.accelerator.current_stream(DEVICE)

    def in_line(target: torch.Tensor, source: torch.Tensor) -> None:
        torch.accelerator.current_stream(DEVICE).wait_stream(compute)
        plain(target, source)

    copies(in_line)
    found = found_by(fences.overlap)
    assert (found.verdict, found.name) == (FAIL, "overlap")
    assert "every refill is waited for" in found.sentence


def test_copies_that_lose_a_byte_are_found(copies: Callable[..., None]) -> None:
    copies(lambda target, source: plain(target[:-1], source[:-1]))
    found = found_by(doctor.bandwidth)
    assert (found.verdict, found.sentence) == (
        FAIL,
        "bytes copied from pinned memory came back as other bytes",
    )


# ---- memory, and the model


def test_too_little_memory_to_lock_is_found(sim: SimDevice) -> None:
    torch.accelerator.empty_host_cache()
    with sim.pinned_fails_at(100 << 20):
        found = found_by(doctor.pinned_memory)
    assert found.verdict == FAIL
    assert found.sentence.startswith("256 MiB of host memory can't be locked (")
    assert "raise ulimit -l" in found.sentence


def test_memory_that_is_not_locked_though_asked_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(doctor, "empty_bytes", lambda size, **_: torch.empty(size).byte())
    assert "asked for locked, and are not" in found_by(doctor.pinned_memory).sentence


def test_a_model_that_is_wrong_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Interpreter, "holds", lambda *_: True)
    found = found_by(doctor.offloaded_model)
    assert found.verdict == FAIL
    assert found.sentence == "offloaded by double_buffer: pass 1 differs from the plain model's"


def test_a_check_that_can_not_be_made_has_failed(events: Callable[..., None]) -> None:
    events()
    device.torch.Event = None
    found = found_by(fences.host_waits)
    assert found == Finding(
        "host waits", FAIL, "it raised TypeError: 'NoneType' object is not callable"
    )


# ---- the report


def test_the_report_says_what_is_locked_and_what_the_device_has(
    monkeypatch: Patch, sim: SimDevice
) -> None:
    model = nn.Sequential(*(nn.Linear(500, 500) for _ in range(4)), nn.Linear(500, 100))
    there = torch.get_device_module(DEVICE)
    monkeypatch.setattr(
        torch.accelerator, "memory_stats", lambda _: {"reserved_bytes.all.current": 5 * 10**6}
    )
    monkeypatch.setattr(there, "mem_get_info", lambda _: (7 * 10**6, 9 * 10**6), raising=False)
    before = sim.pinned().registered
    with runtime.offload(model, list(model)[:4], slots=2) as offloaded:
        model(torch.zeros(1, 500, device=DEVICE))
        report = offloaded.report()
        assert sim.pinned().registered - before == report.bytes_locked
    assert str(report).splitlines() == [
        "schedule   double_buffer, 4 modules over 2 slots, verified",
        "guard      on; 0 misses in 4 runs",
        "device     simdev:0: 2.0 MB in slots, 0.2 MB beside them; 2.0 MB saved of 4.2 MB",
        "beside     4.weight 0.2 MB",
        "memory     5.0 MB reserved by torch's allocator, 7.0 MB free",
        "host       4.0 MB locked, 0.0 MB pageable",
        "copies     2 to preload, then 4.0 a pass, 0 redundant; 6.0 MB in all",
    ]


def test_a_device_that_tells_nothing_of_its_memory_has_no_such_line(
    monkeypatch: Patch,
) -> None:
    def unknown(_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(torch.accelerator, "memory_stats", unknown)
    monkeypatch.setattr(torch.get_device_module(DEVICE), "mem_get_info", unknown, raising=False)
    assert device_memory(torch.device(DEVICE)) == (None, None)
