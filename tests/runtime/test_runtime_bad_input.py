"""Every bad input has its own error, which names what was given and what to do; and the model is
untouched afterwards.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from schedule import (
    OffloadError,
    Policy,
    PolicyError,
    Refill,
    Ring,
    RingError,
    Schedule,
    ScheduleViolation,
    policies,
    verify,
)
from tests.runtime.models import assert_unchanged, batches, outputs, picture, same, stack

N = 5
Made = tuple[Any, dict[str, Any]]
"""What is offloaded, and with which options."""


def refused(model: nn.Module, kind: type[Exception], message: str, **options: Any) -> None:
    """Offloading raises this error, and the model is as before and can still be offloaded."""
    before = picture(model)
    with pytest.raises(kind, match=message) as caught:
        runtime.offload(model, **options)
    assert type(caught.value) is kind
    assert_unchanged(model, before)


# ---- sizes, policies, options


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (0, "slots must be at least 1, got 0"),
        (-1, "slots must be at least 1, got -1"),
        (True, "slots must be an integer, got True of type bool; pass int"),
        ("2", "slots must be an integer, got '2' of type str; pass int"),
        (2.0, r"slots must be an integer, got 2\.0 of type float; pass int"),
    ],
)
def test_slots_that_are_no_size(slots: Any, message: str) -> None:
    refused(stack(N), RingError, message, slots=slots)


def raises(*_: int) -> int:
    raise ZeroDivisionError("planned")


def always(value: Any) -> Callable[..., Any]:
    return lambda *_: value


POLICIES: list[tuple[Any, str]] = [
    ("no_such", "no policy is called 'no_such'; choose one of modular, .*, or give pkg.module:fu"),
    ("", "no policy is called ''; choose one of"),
    ("no_such_package:rule", "importing no_such_package failed .*run from the directory"),
    ("math:no_such", "math was imported but has no 'no_such'"),
    (":rule", "':rule' is not of the form pkg.module:function"),
    ("math:", "'math:' is not of the form pkg.module:function"),
    ("math:pi", r"a policy is a function \(index, slots, modules\) .* got 3\.14"),
    (lambda index, slots: index + slots, r"can't be called with \(index, slots, modules\)"),
    (raises, r"raises\(0, 2, 5\) raised ZeroDivisionError: planned"),
    (always(1.5), "always.* a float; return an integer, or None"),
    (always("0"), "always.* a str; return an integer, or None"),
    (
        always(True),
        "always.* True.* a bool; return an integer, or None",
    ),
    (always(N), r"always.* 5.* no module; return 0 \.\. 4, or None"),
    (always(-1), r"always.* -1.* no module; return 0 \.\. 4, or None"),
    (int, r"a policy is a function .* got <class 'int'>"),
    (5, r"a policy is a function .* got 5"),
    (Policy("off", always(7)), "policy off gives step 0 the slot 7 in Ring"),
]


@pytest.mark.parametrize(
    ("policy", "message"), POLICIES, ids=[str(at) for at in range(len(POLICIES))]
)
def test_policies_that_are_none(policy: Any, message: str) -> None:
    refused(stack(N), PolicyError, message, policy=policy, slots=2)


def test_a_subclass_of_policy() -> None:
    """What it changes is not what is checked."""

    class Mine(Policy):
        pass

    message = "Mine is a subclass of Policy; give a Policy made of functions"
    refused(stack(N), PolicyError, message, policy=Mine("mine", always(0)))


def test_a_policy_that_needs_more_slots() -> None:
    message = "policy double_buffer needs at least 2 slots, got 1; .*single_buffer"
    refused(stack(N), PolicyError, message, policy="double_buffer", slots=1)


@pytest.mark.parametrize("value", ["x", "off", "RELOAD", None, True])
def test_on_miss_that_is_none(value: Any) -> None:
    message = re.escape(f"on_miss must be 'reload' or 'raise', got {value!r}")
    refused(stack(N), OffloadError, message, on_miss=value)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="needs a machine without accelerator")
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda", "device cuda was asked for, but .*accelerator is none; leave device out, or pass"),
        ("meta", "device meta was asked for, but .*accelerator is none"),
        (torch.device("cuda", 1), "device cuda:1 was asked for"),
        ("nonsense", "device 'nonsense' is no device: "),
        (0, "device 0 is no device: "),
    ],
)
def test_devices_that_are_not_there(device: Any, message: str) -> None:
    refused(stack(N), OffloadError, message, device=device)


@pytest.mark.parametrize("device", [[], 1.5, object()])
def test_devices_of_the_wrong_type(device: Any) -> None:
    refused(stack(N), OffloadError, "device", device=device)


# ---- schedules


def test_an_unsafe_schedule() -> None:
    for modules, slots in ((3, 2), (5, 2), (7, 3)):
        model = stack(modules)
        before = picture(model)
        with pytest.raises(ScheduleViolation, match="identity: pass 0: module") as caught:
            runtime.offload(model, slots=slots, policy="modular")
        assert {v.property for v in caught.value.violations} >= {"ownership", "identity"}
        assert_unchanged(model, before)


def test_an_unsafe_function_of_a_user() -> None:
    def mine(index: int, slots: int, modules: int) -> int:
        return (index + slots) % modules

    refused(stack(N), ScheduleViolation, "ownership: .* replaces module 4", policy=mine, slots=2)


def test_a_schedule_for_another_ring() -> None:
    for modules in (N + 1, N - 1):
        message = re.escape(
            f"the schedule is for {modules} modules, but this offload has {N}; make it for "
            f"Ring({N}, 2)"
        )
        for slots in (2, None):
            schedule = policies.balanced(Ring(modules, 2))
            refused(stack(N), OffloadError, message, policy=schedule, slots=slots)


def test_a_schedule_with_other_slots_beside_it() -> None:
    schedule = policies.balanced(Ring(N, 3))
    for policy in (schedule, verify(schedule)):
        message = "^the schedule is for 3 slots, but this offload has 2; pass slots=3, or leave"
        refused(stack(N), OffloadError, message, policy=policy, slots=2)


@pytest.mark.parametrize("prove", [verify, lambda schedule: schedule])
def test_a_schedule_brings_its_slots(prove: Callable[[Schedule], Any]) -> None:
    schedule = policies.balanced(Ring(N, 3))
    with runtime.offload(stack(N), policy=prove(schedule)) as offloaded:
        assert offloaded.schedule == schedule


def test_an_unsafe_policy_is_named_with_its_ring_and_safe_ones() -> None:
    refused(
        stack(N),
        ScheduleViolation,
        f"^policy 'modular' is not safe for {N} modules over 2 slots: ownership: pass 0(.|\\n)*; "
        "leave policy out, or choose one of slot_local, chain, balanced, double_buffer, "
        "single_buffer, rotating, restart, one_ahead, on_demand$",
        policy="modular",
        slots=2,
    )


def two_passes() -> Schedule:
    """One module that changes its slot every pass: safe, with a period of two passes."""
    return Schedule(
        ring=Ring(1, 2),
        policy="rotating",
        slot_of=(0, 1),
        preload=(Refill(0, 0), Refill(1, 0)),
        enter=((), ()),
        before=((), ()),
        after=((), ()),
        leave=((), ()),
    )


def test_a_period_of_two_passes() -> None:
    """Is none: it is executed."""
    verify(two_passes())
    model, inputs = stack(1), batches(5)
    wanted = outputs(stack(1), inputs)
    with runtime.offload(model, slots=2, policy=two_passes()) as offloaded:
        assert same(outputs(model, inputs), wanted)
        report = offloaded.report()
    assert (report.preloaded, report.copies, report.misses) == (2, 0, 0)


# ---- without proof


@pytest.mark.parametrize("word", [False, None, 1, "yes"])
def test_without_proof_only_in_words_of_the_callers_own(word: Any) -> None:
    model = stack(3)
    before = picture(model)
    with pytest.raises(
        OffloadError, match=r"say output_may_be_wrong=True, or use runtime\.offload"
    ):
        offload_without_proof(model, slots=2, policy="modular", output_may_be_wrong=word)
    assert_unchanged(model, before)


def test_without_proof_the_word_has_no_default() -> None:
    with pytest.raises(TypeError, match="output_may_be_wrong"):
        offload_without_proof(stack(3), slots=2, policy="modular")  # type: ignore[call-arg]


def test_without_proof_other_bad_input_is_still_bad() -> None:
    model = stack(3)
    before = picture(model)
    for options, kind in (
        ({"slots": 0, "policy": "modular"}, RingError),
        ({"slots": 2, "policy": "no_such"}, PolicyError),
        ({"slots": 2, "policy": policies.chain(Ring(4, 2))}, OffloadError),
        ({"slots": 2, "policy": "modular", "device": "nonsense"}, OffloadError),
    ):
        with pytest.raises(kind):
            offload_without_proof(model, output_may_be_wrong=True, **options)
    assert_unchanged(model, before)


def test_without_proof_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    for slots, guard, text in (
        (2, False, "offloading by policy modular, which is VIOLATED, guard OFF: the output may be"),
        (3, True, "offloading by policy modular, which is safe, guard on: the output may be wrong"),
    ):
        caplog.clear()
        with offload_without_proof(
            stack(3), slots=slots, policy="modular", output_may_be_wrong=True, guard=guard
        ):
            (record,) = caplog.records
            assert (record.name, record.levelname) == ("ringproof.runtime", "WARNING")
            assert text in record.getMessage()


# ---- what is good input, though it looks odd


GOOD: list[Any] = [
    "chain",
    "schedule.policy:slot_local_target",
    "schedule.policy:balanced",
    policies.double_buffer,
    policies.slot_local_target,
    policies.balanced(Ring(N, 2)),
    dataclasses.replace(policies.chain(Ring(N, 2)), policy="another name"),
    verify(policies.chain(Ring(N, 2))),
    Policy("mine", always(0)),
    lambda index, slots, modules: index + slots if index + slots < modules else index % slots,
]


@pytest.mark.parametrize("policy", GOOD, ids=[str(at) for at in range(len(GOOD))])
def test_every_form_of_policy_is_accepted(policy: Any) -> None:
    model = stack(N)
    with runtime.offload(model, slots=2, policy=policy) as offloaded:
        assert same(outputs(model, batches(2)), outputs(stack(N), batches(2)))
        assert offloaded.report().misses == 0
        assert offloaded.report().copies == 2 * offloaded.schedule.copies
