"""Host blocks: packing, chunks, and the order in which modules are locked."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.device import InlineStreams
from runtime.host import PAGE, HostMemory
from runtime.layout import Layout, lay_out
from runtime.locked import Registered, Slabs, host_memory
from runtime.registration import Registration, registration_of
from schedule import Ring, policies
from tests.runtime.models import batches, outputs, same, stack

CPU = torch.device("cpu")


# ---- what is locked, and in which order


class Driver:
    """Registers; refuses what would be beyond the limit."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.limit, self.there = limit, dict[int, int]()
        self.asked: list[int] = []
        self.offer = Registration(self.register, self.unregister)

    def register(self, address: int, size: int) -> None:
        assert address % PAGE == size % PAGE == 0
        self.asked.append(size)
        if size + sum(self.there.values()) > self.limit:
            raise RuntimeError("no more\nand a stack")
        self.there[address] = size

    def unregister(self, address: int) -> None:
        del self.there[address]


NUMBERS = 2 * 256
"""Bytes of the layouts' blocks that are no weights: those before them, and those behind."""


def weights(pages: int, modules: int = 1) -> int:
    """Bytes of weights in the blocks of so many modules, which are so many pages in all."""
    return pages * PAGE - modules * NUMBERS


def layouts_of(*pages: int) -> list[Layout]:
    """Modules whose blocks are of so many pages."""
    modules = [nn.Linear(1, weights(count) // 4, bias=False) for count in pages]
    layouts = [lay_out(module, f"m{at}", frozenset()) for at, module in enumerate(modules)]
    assert [layout.size for layout in layouts] == [count * PAGE for count in pages]
    return layouts


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    monkeypatch.setattr("runtime.locked.registration_of", lambda _: made.offer)
    yield made
    gc.collect()
    assert made.there == {}


def streams(waits: list[int] | None = None) -> Any:
    log = [] if waits is None else waits
    return SimpleNamespace(locks=True, device=CPU, synchronize=lambda: log.append(1))


def made(host: HostMemory) -> HostMemory:
    blocks = [host.block(module) for module in range(len(host.layouts))]
    for block, layout in zip(blocks, host.layouts, strict=True):
        assert block[0].offset == 0
        assert sum(segment.bytes.numel() for segment in block) == layout.size
    host.lock()
    return host


def test_modules_that_are_refilled_most_are_locked_first(driver: Driver) -> None:
    """In a ring of 5 over 3 slots, module 2 has one for itself; the others are refilled."""
    layouts, schedule = layouts_of(1, 2, 3, 4, 5), policies.chain(Ring(5, 3))
    assert {refill.module for each in schedule.after for refill in each} == {0, 1, 3, 4}
    assert driver.asked == []
    host = made(host_memory(layouts, schedule, streams(), 1 << 40))
    assert driver.asked == [PAGE * n for n in (1, 2, 4, 5, 3)]
    assert (host.bytes_locked, host.bytes_pageable) == (15 * PAGE, 0)
    for module in range(5):
        assert len(driver.there) == 5 - module
        host.release(module)
    driver.asked.clear()
    host = made(host_memory(layouts, schedule, streams(), 6 * PAGE))
    assert driver.asked == [PAGE * n for n in (1, 2, 3)]
    assert (host.bytes_locked, host.bytes_pageable) == (6 * PAGE, weights(9, modules=2))
    driver.asked.clear()
    host = made(host_memory(layouts, schedule, streams(), 9 * PAGE))
    assert driver.asked == [PAGE * n for n in (1, 2, 4)]


def test_after_a_refusal_only_less_is_tried(
    driver: Driver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.host._limit_of_process", lambda: PAGE)
    layouts, schedule = layouts_of(2, 4, 4, 1, 5), policies.chain(Ring(5, 2))
    driver.limit = 5 * PAGE
    host = made(host_memory(layouts, schedule, streams(), 1 << 40))
    assert driver.asked == [PAGE * n for n in (2, 4, 1)]
    assert (host.bytes_locked, host.bytes_pageable) == (3 * PAGE, weights(13, modules=3))
    assert host.notes == [f"m1, {4 * PAGE} bytes, can't be page-locked (no more)"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"this process may lock {PAGE} bytes (ulimit -l)" in record.message


def test_the_bar_counts_what_is_locked(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver takes longer for it than the values took to be moved."""
    shown: list[tuple[str, int, int, list[int]]] = []

    def with_bar(items: list[int], sizes: list[int], what: str) -> Iterator[int]:
        for item, size in zip(items, sizes, strict=True):
            yield item
            shown.append((what, item, size, list(driver.asked)))

    monkeypatch.setattr("runtime.locked.with_bar", with_bar)
    host = host_memory(layouts_of(1, 2, 3), policies.chain(Ring(3, 1)), streams(), 1 << 40)
    assert shown == []
    made(host)
    assert shown == [
        ("locking weights", module, (module + 1) * PAGE, [PAGE, 2 * PAGE, 3 * PAGE][: module + 1])
        for module in range(3)
    ]


def test_the_limit_of_the_process_is_said_before(
    driver: Driver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts, schedule = layouts_of(2, 2), policies.chain(Ring(2, 1))
    with caplog.at_level(logging.INFO, "ringproof.runtime"):
        for limit in (None, 4 * PAGE, 4 * PAGE - 1):
            monkeypatch.setattr("runtime.host._limit_of_process", lambda limit=limit: limit)
            host_memory(layouts, schedule, streams(), 1 << 40)
        host_memory(layouts, schedule, streams(), 2 * PAGE)
    assert driver.asked == []
    (record,) = caplog.records
    said = f"{4 * PAGE} bytes are to be page-locked; this process may lock {4 * PAGE - 1} bytes"
    assert record.message.startswith(said)


def test_many_tiny_tensors_are_not_locked(driver: Driver) -> None:
    tiny = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(100))
    layouts = [lay_out(module, "tiny", frozenset()) for module in (tiny, nn.Linear(8, 8))]
    host = made(host_memory(layouts, policies.chain(Ring(2, 1)), streams(), 1 << 40))
    assert driver.asked == [PAGE]
    assert host.notes == ["tiny is more gaps than weights and stays pageable"]
    assert host.bytes_pageable == 400


def test_what_is_dropped_without_close_is_unregistered_after_its_copies(driver: Driver) -> None:
    waits: list[int] = []
    host = made(host_memory(layouts_of(1, 2), policies.chain(Ring(2, 1)), streams(waits), 1 << 40))
    kept = host.block(0)[0].bytes  # a second map, which is not registered
    assert len(driver.there) == 2
    plain, driver.unregister = driver.unregister, None  # type: ignore[method-assign]
    assert waits == []
    del host
    gc.collect()
    assert waits == [1]
    assert driver.there == {}
    assert kept.fill_(1).sum() == PAGE
    assert plain is not None


def test_nothing_is_locked_on_a_cpu_or_with_a_limit_of_zero(driver: Driver) -> None:
    layouts, schedule = layouts_of(1, 2), policies.chain(Ring(2, 1))
    for host in (
        host_memory(layouts, schedule, InlineStreams(CPU), 1 << 40),
        host_memory(layouts, schedule, streams(), 0),
    ):
        assert type(made(host)) is HostMemory
        assert (host.bytes_locked, host.bytes_pageable) == (0, weights(3, modules=2))
    assert driver.asked == []


def test_maps_are_private_and_blocks_are_right_on_a_cpu(driver: Driver) -> None:
    del driver
    layouts = layouts_of(1)
    host = host_memory(layouts, policies.chain(Ring(1, 1)), streams(), 1 << 40)
    assert isinstance(host, Registered)
    address = host.block(0)[0].bytes.data_ptr()
    with open("/proc/self/maps") as maps:
        (line,) = [one for one in maps if one.startswith(f"{address:x}-") or _within(one, address)]
    assert line.split()[1] == "rw-p"
    model, x = stack(4, uneven=True), batches(1)
    with runtime.offload(model, slots=2, pin="1GiB", chunk="1MiB") as offloaded:
        assert same(outputs(model, x), outputs(stack(4, uneven=True), x))
        assert offloaded.placement.bytes_host[0] == 0


def _within(line: str, address: int) -> bool:
    first, _, last = line.split()[0].partition("-")
    return int(first, 16) <= address < int(last, 16)


# ---- slabs


def test_a_refused_slab_is_pageable(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def empty(
        size: int, *, dtype: torch.dtype, device: str, pin_memory: bool = False
    ) -> torch.Tensor:
        if pin_memory:
            asked.append(size)
            if asked == [2 * PAGE, 4 * PAGE, 4 * PAGE]:
                raise RuntimeError("out of it")
        return torch.zeros(size, dtype=dtype, device=device)

    monkeypatch.setattr("runtime.locked.registration_of", lambda _: None)
    monkeypatch.setattr("runtime.host.torch", SimpleNamespace(empty=empty, uint8=torch.uint8))
    layouts = layouts_of(2, 4, 4, 1)
    host = host_memory(layouts, policies.chain(Ring(4, 2)), streams(), 1 << 40)
    assert isinstance(host, Slabs)
    assert asked == []
    host.block(0)
    assert asked == [2 * PAGE]
    made(host)
    assert asked == [PAGE * n for n in (2, 4, 4, 1)]
    assert host.bytes_locked == 7 * PAGE
    assert host.bytes_pageable == weights(4)
    assert host.notes == [f"slab 2, {4 * PAGE} bytes, can't be page-locked (out of it)"]


# ---- what a device type offers


class Code(int):
    """As the drivers' enumerations are."""


def test_cuda_offers_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, ...]] = []

    def host_register(*arguments: int) -> int:
        told.append(arguments)
        return 2 if arguments[1] > PAGE else 0

    def check(code: int) -> None:
        if code:
            raise RuntimeError(f"code {code}")

    functions = SimpleNamespace(
        cudaHostRegister=host_register, cudaHostUnregister=lambda at: told.append((at,)) or 0
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: functions)
    monkeypatch.setattr(torch.cuda, "check_error", check)
    offered = registration_of(torch.device("cuda:0"))
    assert offered is not None
    offered.register(4 * PAGE, PAGE)
    offered.unregister(4 * PAGE)
    assert told == [(4 * PAGE, PAGE, 1), (4 * PAGE,)]
    with pytest.raises(RuntimeError, match="code 2"):
        offered.register(4 * PAGE, 2 * PAGE)


def test_newer_npus_offer_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, ...]] = []

    def answer(*arguments: int) -> Code:
        told.append(arguments)
        return Code(len(told) - 2)

    npu, npus = SimpleNamespace(type="npu"), SimpleNamespace()
    monkeypatch.setattr(torch, "get_device_module", lambda _: npus)
    assert registration_of(npu) is None  # type: ignore[arg-type]
    npus.npurt = SimpleNamespace
    assert registration_of(npu) is None  # type: ignore[arg-type]
    npus.npurt = lambda: SimpleNamespace(npuHostRegister=answer, npuHostUnregister=answer)
    offered = registration_of(npu)  # type: ignore[arg-type]
    assert offered is not None
    with pytest.raises(RuntimeError, match="npuHostRegister failed with error -1"):
        offered.register(PAGE, PAGE)
    offered.unregister(PAGE)
    assert told == [(PAGE, PAGE, 2), (PAGE,)]


def test_a_cpu_offers_none() -> None:
    assert registration_of(CPU) is None
