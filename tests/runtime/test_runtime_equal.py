"""Outputs are bit for bit those of the plain model, and are not once the schedule is unsafe.

On a CPU host block and slot are one memory, so equality alone proves little. Therefore every
slot is poisoned as soon as nobody may read it, the copies are counted, and each equality has a
twin that must fail.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import pytest
import torch

import runtime
from runtime import Offloaded, Report
from runtime.unverified import offload_without_proof
from schedule import Ring, Schedule, check, policies
from schedule.properties import IDENTITY
from schedule.ring import EMPTY
from schedule.table import RUN
from tests.runtime.models import (
    Stack,
    batches,
    block_bytes,
    fails,
    moments_of,
    named_schedules,
    outputs,
    same,
    stack,
)
from tests.runtime.poison import Poisoned

PASSES = 3
MODULES, SLOTS = range(1, 9), range(1, 10)


def unproved(model: Stack, schedule: Schedule) -> Offloaded:
    """The model offloaded by any schedule, without guard."""
    return offload_without_proof(
        model, slots=schedule.ring.slots, policy=schedule, output_may_be_wrong=True
    )


# ---- right


@pytest.mark.parametrize("modules", MODULES)
def test_every_safe_policy_gives_the_outputs_of_the_plain_model(
    poisoned: Poisoned, modules: int
) -> None:
    plain = stack(modules, uneven=True)
    inputs = batches(PASSES)
    wanted = outputs(copy.deepcopy(plain), inputs)
    for slots in SLOTS:
        for schedule in named_schedules(Ring(modules, slots)):
            report = assert_right(copy.deepcopy(plain), schedule, inputs, wanted)
            assert poisoned.copies == report.preloaded + report.copies
            assert poisoned.released == refilled_at_once(schedule)
            poisoned.copies = 0
            poisoned.released.clear()


def assert_right(
    model: Stack, schedule: Schedule, inputs: list[torch.Tensor], wanted: list[torch.Tensor]
) -> Report:
    ring, sizes = schedule.ring, [block_bytes(layer) for layer in model.layers]
    with runtime.offload(model, slots=ring.slots, policy=schedule, on_miss="raise") as offloaded:
        assert same(outputs(model, inputs), wanted), schedule
        report = offloaded.report()
    refills = [m for m in moments_of(schedule, PASSES) if m.half != RUN]
    assert report.preloaded == len(schedule.preload)
    assert report.copies == len(refills) - report.preloaded
    if schedule.period == 1:
        assert report.copies == PASSES * schedule.copies
    assert report.bytes_copied == sum(sizes[refill.module] for refill in refills)
    assert (report.runs, report.misses) == (PASSES * ring.modules, 0)
    if ring.slots < ring.modules:
        assert report.copies > 0
        if schedule.period == 1:
            assert report.bytes_slots < sum(sizes)
    return report


def refilled_at_once(schedule: Schedule) -> list[int]:
    """The modules behind whose runs another one is copied into their slot, as they run."""
    positions = [step % len(schedule.slot_of) for step in range(PASSES * schedule.ring.modules)]
    return [
        at % schedule.ring.modules
        for at in positions
        if any(
            slot == schedule.slot_of[at] and module != at % schedule.ring.modules
            for slot, module in schedule.after[at]
        )
    ]


def test_the_same_model_can_be_offloaded_again_and_again() -> None:
    """Each time by another schedule, and in the end it is the plain model."""
    model, inputs = stack(5, uneven=True), batches(PASSES)
    wanted = outputs(copy.deepcopy(model), inputs)
    for slots in SLOTS:
        for schedule in named_schedules(Ring(5, slots)):
            with runtime.offload(model, slots=slots, policy=schedule):
                assert same(outputs(model, inputs), wanted)
            assert same(outputs(model, inputs), wanted)


# ---- and wrong when a refill is missing


def lacking(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule without one of its refills, for each of them."""
    for position in range(len(schedule.preload)):
        rest = schedule.preload[:position] + schedule.preload[position + 1 :]
        yield dataclasses.replace(schedule, preload=rest)
    for step, refills in enumerate(schedule.after):
        if refills:
            after = (*schedule.after[:step], (), *schedule.after[step + 1 :])
            yield dataclasses.replace(schedule, after=after)


@pytest.mark.parametrize("policy", [policies.chain, policies.balanced, policies.double_buffer])
def test_without_any_one_refill_the_outputs_are_wrong(policy: policies.Policy) -> None:
    """None of these policies has a refill that could be left out."""
    inputs = batches(PASSES)
    for modules in range(1, 7):
        plain = stack(modules)
        wanted = outputs(copy.deepcopy(plain), inputs)
        for slots in range(policy.least_slots, 7):
            for schedule in lacking(policy(Ring(modules, slots))):
                model = copy.deepcopy(plain)
                with unproved(model, schedule) as offloaded:
                    for slot in offloaded.arena.slots:  # what no refill wrote is not there by luck
                        if slot.data_ptr() not in preloaded(offloaded):
                            slot.fill_(0xFF)
                    assert not same(outputs(model, inputs), wanted), schedule


def preloaded(offloaded: Offloaded) -> set[int]:
    """The addresses of the slots that the preload wrote."""
    return {offloaded.arena.slots[refill.slot].data_ptr() for refill in offloaded.schedule.preload}


# ---- the old rule


@pytest.mark.parametrize("poison", [pytest.param(False, marks=pytest.mark.unpoisoned), True])
@pytest.mark.parametrize("modules", MODULES)
def test_the_old_rule_is_wrong_exactly_where_the_check_says_so(
    poisoned: Poisoned, modules: int, poison: bool
) -> None:
    plain = stack(modules)
    inputs = batches(PASSES)
    wanted = outputs(copy.deepcopy(plain), inputs)
    wrong = []
    for slots in SLOTS:
        model = copy.deepcopy(plain)
        with unproved(model, policies.modular(Ring(modules, slots))) as offloaded:
            if not same(outputs(model, inputs), wanted):
                wrong.append(slots)
            assert offloaded.report().verified == (not fails(Ring(modules, slots)))
    assert wrong == [k for k in SLOTS if not check(policies.modular(Ring(modules, k))).safe]
    assert wrong == [k for k in SLOTS if fails(Ring(modules, k))]
    assert bool(poisoned.copies) == poison


def watch(model: Stack) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A list that collects every layer's input and output, as they come."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda _, args, output: seen.append((args[0], output)))
    return seen


@pytest.mark.parametrize(
    ("modules", "slots"), [(n, k) for n in MODULES for k in SLOTS if fails(Ring(n, k))]
)
def test_the_first_wrong_layer_is_the_one_that_the_verifier_names(modules: int, slots: int) -> None:
    """In the pass that it names, and it computes with the weights that it names."""
    model, inputs = stack(modules), batches(PASSES)
    plain = copy.deepcopy(model)
    expected, seen = watch(plain), watch(model)
    outputs(plain, inputs)
    schedule = policies.modular(Ring(modules, slots))
    (violation,) = [v for v in check(schedule).violations if v.property == IDENTITY]
    with unproved(model, schedule):
        outputs(model, inputs)
    differ = [at for at, (a, b) in enumerate(zip(seen, expected, strict=True)) if differs(a, b)]
    assert differ[0] == violation.trace[violation.run].step
    assert differ[0] % modules == violation.needs
    given, got = seen[differ[0]]
    assert torch.equal(given, expected[differ[0]][0])
    assert violation.has not in (EMPTY, violation.needs)
    with torch.no_grad():
        assert torch.equal(got, plain.layers[violation.has](given))


def differs(
    first: tuple[torch.Tensor, torch.Tensor], second: tuple[torch.Tensor, torch.Tensor]
) -> bool:
    return not torch.equal(first[1], second[1])


def test_the_guard_makes_the_old_rule_right_by_reloading() -> None:
    for modules, slots in ((3, 2), (5, 3), (8, 3)):
        model, inputs = stack(modules), batches(PASSES)
        wanted = outputs(copy.deepcopy(model), inputs)
        with offload_without_proof(
            model, slots=slots, policy="modular", output_may_be_wrong=True, guard=True
        ) as offloaded:
            assert same(outputs(model, inputs), wanted)
            assert offloaded.report().misses > 0
