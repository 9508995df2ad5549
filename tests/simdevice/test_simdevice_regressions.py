"""Public reports of races, of memory that is handed out too early, each right as it is here and
wrong with the fault that is reported. The table of all reports is
``tests/regressions/README.md``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

import runtime
from runtime.device import AcceleratorStreams, Action
from runtime.unverified import offload_without_proof
from schedule.errors import ProgramError
from schedule.operations import COMPUTE, COPY, RAN, Operation, Operations, Record, Wait
from schedule.program import Program, lower
from schedule.table import Schedule
from tests.runtime.checkpoints import on_meta, save
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import Case, Stack, batches, same

unverified = functools.partial(offload_without_proof, output_may_be_wrong=True, guard=True)
N = 5


def results(sim: SimDevice, case: Case, seeds: int = 6) -> set[bool]:
    """Whether what comes is right, under all of these seeds."""
    with case.offloaded:
        return {case.right(sim, seed, who) for who in ADVERSARIES for seed in range(seeds)}


# ---- lowerings with the fault of a report


def everywhere(change: Callable[[Operations], Iterable[Operation]]) -> Callable[..., Program]:
    """A lowering all of whose operations are changed."""

    def lowered(schedule: Schedule, **options: object) -> Program:
        whole = lower(schedule, **options)  # type: ignore[arg-type]
        halves = {
            name: tuple(tuple(change(each)) for each in getattr(whole, name))
            for name in ("enter", "before", "begin", "after", "leave")
        }
        return replace(whole, **halves, preload=tuple(change(whole.preload)))

    return lowered


def last_does_not_wait(operations: Operations) -> Iterable[Operation]:
    """diffusers #11981: a group waited as a side effect of bringing the next one; the last one,
    after a group of its own kind, waited for nothing."""
    return (o for o in operations if not (isinstance(o, Wait) and o.module == N - 1))


def never_waits_for_copies(operations: Operations) -> Iterable[Operation]:
    """diffusers #13502, ROCm/pytorch #3194: the compute stream never waited for the transfer
    stream: wrong nearly always on some cards, and nearly never on others."""
    return (o for o in operations if not (isinstance(o, Wait) and o.stream == COMPUTE))


def gives_back_unread(operations: Operations) -> Iterable[Operation]:
    """ComfyUI #10501, pytorch #178142: what is being read was given to the next copy, which did
    not wait for compute; a mismatch on slow accelerators only."""
    return (o for o in operations if not (isinstance(o, Wait) and o.stream == COPY))


def records_the_side_stream(operations: Operations) -> Iterable[Operation]:
    """diffusers #12673: the current stream was asked for within the side stream's context, so that
    the side stream was recorded in place of the one that reads."""
    of = {Record(COMPUTE, RAN): Record(COPY, RAN)}
    return (of.get(o, o) for o in operations)  # type: ignore[call-overload]


FAULTS = (
    last_does_not_wait,
    never_waits_for_copies,
    gives_back_unread,
    records_the_side_stream,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wait_is_missing_or_on_the_wrong_stream(
    sim: SimDevice, fault: Callable[[Operations], Iterable[Operation]]
) -> None:
    """Wrong under seeds under which the whole program is right; and refused at the door."""
    assert results(sim, Case("chain", N, 2)) == {True}
    broken = everywhere(fault)
    assert False in results(sim, Case("chain", N, 2, lower=broken, offload=unverified))
    with pytest.raises(ProgramError, match=r"^(RAW|WAR): "):
        Case("chain", N, 2, lower=broken)


# ---- one policy, several paths to the host memory

PATHS = ("registered", "slabs", "pageable", "checkpoint")


def on_path(path: str, folder: Path) -> tuple[runtime.Offloaded, Stack]:
    if path == "checkpoint":
        pytest.importorskip("safetensors")
        model = on_meta(lambda: Stack(N))
        file = save(Stack(N), folder / "a.safetensors")
        return runtime.load(model, file, slots=2, policy="chain", device=DEVICE), model
    model, way = Stack(N), nullcontext()
    if path == "slabs":
        way = patch("runtime.locked.registration_of", lambda _: None)
    with way:
        pin = path != "pageable"
        return runtime.offload(model, slots=2, policy="chain", device=DEVICE, pin=pin), model


def without_waits_for_compute() -> AbstractContextManager[object]:
    whole = AcceleratorStreams.fence

    def broken(self: AcceleratorStreams, operation: Record | Wait) -> Action:
        if isinstance(operation, Wait) and operation.stream == COPY:
            return lambda: None
        return whole(self, operation)

    return patch.object(AcceleratorStreams, "fence", broken)


@pytest.mark.parametrize("path", PATHS)
def test_one_of_several_paths_frees_memory_without_waiting(
    sim: SimDevice, path: str, tmp_path: Path
) -> None:
    """diffusers #14657: all-NaN from the path through the disk, which gave device memory back
    while compute was still reading it; the path through host memory waited."""
    plain = [Stack(N)(x, range(N)) for x in batches(3)]

    def found() -> set[bool]:
        offloaded, model = on_path(path, tmp_path)
        right = set()
        with offloaded:
            inputs = [x.to(DEVICE) for x in batches(3)]
            for seed in range(6):
                with sim.steps(seed, "compute"):
                    given = [model(x, range(N)) for x in inputs]
                right.add(same(given, plain))
        return right

    assert found() == {True}
    with without_waits_for_compute():
        assert False in found()


# ---- memory that is handed out in another stream's order


def preloaded(sim: SimDevice, fenced: bool) -> torch.Tensor:
    """The first weights in the slot after a preload that was issued while the compute stream was
    busy: the slot's memory is free when that stream gets there."""
    layers = list(Stack(3).layers)
    fence = nullcontext() if fenced else without_waits_for_compute()
    with sim.held(torch.accelerator.current_stream()) as hold, fence:
        offloaded = runtime.offload(layers, slots=1, device=DEVICE)
        if not fenced:
            offloaded.streams._copy_streams[COPY].synchronize()
        hold.release()
    with offloaded:
        torch.accelerator.synchronize()
        first = offloaded.arena.layouts[0].items[0].regions[0].offset
        return offloaded.arena.slots[0][first:].view(torch.float32)[:4].cpu()


def test_the_first_write_comes_before_the_memory_is_free(sim: SimDevice) -> None:
    """ROCm/ATOM #1956: a buffer was allocated in the compute stream's order and first written by a
    side stream, before its former owner was done with it. The preload waits for that stream."""
    wanted = Stack(3).layers[0].weight.detach().flatten()[:4]
    assert torch.equal(preloaded(sim, fenced=True), wanted)
    assert preloaded(sim, fenced=False).isnan().all()
