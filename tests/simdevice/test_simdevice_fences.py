"""Every fence is needed: offloaded models are wrong under some seed where one is missing, be it
that the runtime does not execute it, or that the lowering has a fault."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch

from proofs.mutants_guard import GUARD_MUTANTS
from proofs.mutants_program import PROGRAM_MUTANTS
from proofs.mutation import Mutant, apply
from proofs.obligation import System
from runtime.device import AcceleratorStreams, Action, Pieces
from runtime.unverified import offload_without_proof
from schedule.errors import ProgramError
from schedule.operations import COMPUTE, COPY, Record, Wait
from schedule.program import lower
from schedule.ring import Ring
from schedule.table import Refill, Schedule
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE
from tests.simdevice.offloads import IN_ORDER, ONE, SAFE, Case, Stack, batches, same

FENCES: dict[str, Callable[[Record | Wait], bool]] = {
    "record of what ran": lambda op: isinstance(op, Record) and op.stream == COMPUTE,
    "wait for what ran": lambda op: isinstance(op, Wait) and op.stream == COPY,
    "record of what landed": lambda op: isinstance(op, Record) and op.stream == COPY,
    "wait for what landed": lambda op: isinstance(op, Wait) and op.stream == COMPUTE,
}


@contextmanager
def without(monkeypatch: pytest.MonkeyPatch, fence: str) -> Iterator[None]:
    """Programs that are bound in this context lack the fence."""
    whole = AcceleratorStreams.fence

    def broken(self: AcceleratorStreams, operation: Record | Wait) -> Action:
        if FENCES[fence](operation):
            return lambda: None
        return whole(self, operation)

    with monkeypatch.context() as patch:
        patch.setattr(AcceleratorStreams, "fence", broken)
        yield


@pytest.mark.parametrize("policy", SAFE)
@pytest.mark.parametrize("fence", FENCES)
def test_a_missing_fence_shows(
    sim: SimDevice, monkeypatch: pytest.MonkeyPatch, fence: str, policy: str
) -> None:
    with without(monkeypatch, fence):
        case = Case(policy, 5, 3)
    with case.offloaded:
        for adversary in ("compute" if "ran" in fence else "copies", "random"):
            assert not all(case.right(sim, seed, adversary) for seed in range(20)), adversary


def test_a_copy_on_the_wrong_stream_shows(sim: SimDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """WAW: the program has one copy stream, and relies on it for copies into one slot. With a new
    stream for each copy that order is gone."""

    def scattered(self: AcceleratorStreams, _: str, pieces: Pieces) -> Action:
        ((target, source),) = pieces

        def copy_() -> None:
            other = torch.Stream(device=self.device)
            other.wait_event(self._copy_streams[COPY].record_event())
            with other:
                target.copy_(source, non_blocking=True)

        return copy_

    with monkeypatch.context() as patch:
        patch.setattr(AcceleratorStreams, "copy", scattered)
        case = Case("chain", 5, 3)
    with case.offloaded:
        assert not all(case.right(sim, seed, "copies") for seed in range(4))
    torch.accelerator.synchronize()


# ---- faults in the lowering, by their source

TWO = "two copy streams"
MUTANTS = {mutant.name: mutant for mutant in PROGRAM_MUTANTS}
RUN_WITH: dict[str, tuple[tuple[str, int, int, str, str], ...]] = {
    "no fork event": (("chain", 5, 3, IN_ORDER, ONE), ("restart", 5, 3, IN_ORDER, TWO)),
    "stream-wide wait replaced by nothing": (
        ("rotating", 3, 2, IN_ORDER, ONE),
        ("on_demand", 4, 2, "skipped", ONE),
    ),
    "no wait for the copy": (
        ("double_buffer", 5, 3, IN_ORDER, ONE),
        ("chain", 3, 1, "updated", ONE),
    ),
    "wait on a stale record": (
        ("balanced", 5, 2, IN_ORDER, ONE),
        ("one_ahead", 5, 2, IN_ORDER, TWO),
    ),
    "two copy streams without order": (("chain", 3, 1, "skipped", TWO),),
    "resuming without a wait": (("chain", 2, 1, "nested", ONE),),
    "a reload without its fences": (
        ("chain", 3, 1, "nested", ONE),
        ("one_ahead", 5, 2, "backwards", TWO),
    ),
}
"""By mutant of the lowering, what is offloaded: policy, modules, slots, what runs, streams."""

UNSEEN = (
    "two copy streams without order",
    "resuming without a wait",
    "a reload without its fences",
)
"""In order nothing is missing: the clocks at the door see passes in order."""

unverified = functools.partial(offload_without_proof, output_may_be_wrong=True, guard=True)
without_guard = functools.partial(unverified, guard=False)


def rights(sim: SimDevice, case: Case, seeds: int) -> set[bool]:
    """What comes under these seeds."""
    with case.offloaded:
        return {case.right(sim, seed, who) for who in ADVERSARIES for seed in range(seeds)}


@pytest.mark.parametrize("name", RUN_WITH)
def test_a_fault_in_the_lowering_shows(sim: SimDevice, name: str) -> None:
    """Under the very seeds under which the whole lowering is right."""
    faulty = apply(MUTANTS[name], System()).program.lower
    for arguments in RUN_WITH[name]:
        assert False in rights(sim, Case(*arguments, lower=faulty, offload=unverified), 8)
        assert rights(sim, Case(*arguments, offload=unverified), 8) == {True}


def bits(sim: SimDevice, case: Case, seed: int) -> list[bytes]:
    """What a round gives under this seed."""
    with sim.steps(seed):
        given = case.outputs()
    return [x.cpu().numpy().tobytes() for x in given]


@pytest.mark.unpoisoned  # what a fault computes would be NaN whatever the seed
@pytest.mark.parametrize("name", RUN_WITH)
def test_a_seed_alone_does_what_it_does_among_others(sim: SimDevice, name: str) -> None:
    """Else the line that a failing test prints would not replay it. Checked where seeds differ."""
    faulty = apply(MUTANTS[name], System()).program.lower

    def case() -> Case:
        return Case(*RUN_WITH[name][0], lower=faulty, offload=unverified)

    among = case()
    with among.offloaded:
        found = [bits(sim, among, seed) for seed in range(10)]
    assert len({*map(tuple, found)}) > 2
    for seed in (3, 7, 9):
        alone = case()
        with alone.offloaded:
            assert bits(sim, alone, seed) == found[seed]


@pytest.mark.parametrize("name", RUN_WITH)
def test_the_verified_door_refuses_it(name: str) -> None:
    """What is offloaded in earnest is checked by the clocks first, and nothing is changed."""
    faulty = apply(MUTANTS[name], System()).program.lower
    arguments = (*RUN_WITH[name][0][:3], IN_ORDER, RUN_WITH[name][0][4])
    if name in UNSEEN:
        Case(*arguments, lower=faulty).offloaded.close()
    else:
        with pytest.raises(ProgramError, match=r"^(WAR|RAW|meaning): "):
            Case(*arguments, lower=faulty)


# ---- faults in the guard

GUARDED = {
    "an older version is resident": ("is_resident", ("chain", 3, 3, "updated")),
    "a miss is not reloaded": ("arrives", ("chain", 3, 1, "skipped")),
    "reloaded too late": ("arrives", ("chain", 3, 1, "skipped")),
    "what is resident resumes without a wait": ("resumes", ("chain", 2, 1, "nested")),
    "what lost its slot resumes": ("resumes", ("chain", 3, 1, "nested")),
}
"""By mutant of the guard, the function that it changes, and what is offloaded."""


@pytest.mark.parametrize("mutant", GUARD_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_fault_in_the_guard_shows(sim: SimDevice, mutant: Mutant) -> None:
    function, arguments = GUARDED[mutant.name]
    room = "interpreter" if function == "is_resident" else "hooks"
    faulty = getattr(apply(mutant, System()).guard, function)
    with patch(f"runtime.{room}.{function}", faulty):
        assert False in rights(sim, Case(*arguments), 8)
    assert rights(sim, Case(*arguments), 8) == {True}


# ---- a perfectly ordered program of an unsafe schedule


def test_an_unsafe_schedule_is_wrong_under_every_seed(sim: SimDevice) -> None:
    case = Case("modular", 3, 2, offload=without_guard)
    assert rights(sim, case, 20) == {False}
    assert not case.offloaded.verified


def test_the_guard_makes_it_right(sim: SimDevice) -> None:
    case = Case("modular", 3, 2, offload=unverified)
    assert rights(sim, case, 20) == {True}
    assert case.offloaded.report().misses > 0


# ---- the host's write of a block

AHEAD = Schedule(
    ring=Ring(1, 2),
    policy="ahead",
    slot_of=(0, 1),
    preload=(),
    enter=((Refill(0, 0), Refill(1, 0)), ()),
    before=((), ()),
    after=((), ()),
    leave=((), ()),
)
"""The only module is brought for two passes at once. It writes into its weights in the first one,
and the second one, without the guard, is meant to read them as they were."""


def reads_the_old_weights(
    sim: SimDevice, lower: Callable[..., object], seed: int, adversary: str
) -> bool:
    """Whether the copy that was under way when the host wrote the block brought it as it was."""
    writing, plain = Stack(1, "writing"), Stack(1)
    with sim.steps(seed, adversary), patch("runtime.unverified.lower", lower):
        inputs = [x.to(DEVICE) for x in batches(2)]
        with without_guard(writing, slots=2, policy=AHEAD, device=DEVICE):
            given = [writing(x, [0]) for x in inputs]
    return same(given, [plain(x, [0]) for x in batches(2)])


def test_the_host_writes_a_block_when_no_copy_reads_it(sim: SimDevice) -> None:
    faulty = apply(MUTANTS["a host write during a copy"], System()).program.lower
    seeds = [(seed, adversary) for adversary in ADVERSARIES for seed in range(8)]
    assert all(reads_the_old_weights(sim, lower, *each) for each in seeds)
    assert not all(reads_the_old_weights(sim, faulty, *each) for each in seeds)
