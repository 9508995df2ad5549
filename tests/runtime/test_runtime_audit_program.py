"""What is audited is the runtime's own program, whatever the hooks do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable

import pytest
import torch

import runtime
from runtime.unverified import offload_without_proof
from schedule import Ring, policies
from schedule.audit import audit
from schedule.errors import ProgramError
from schedule.operations import Issued, Wait
from schedule.order import order
from tests.runtime.models import batches, before_run, outputs
from tests.runtime.models import stack as plain_stack
from tests.runtime.test_runtime_audit import NAMED, again
from tests.runtime.test_runtime_nested import hosts


def test_the_runtime_refuses_a_program_that_its_fences_do_not_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_waits(listing: Iterable[Issued]) -> tuple[Issued, ...]:
        return tuple(one for one in listing if not isinstance(one.operation, Wait))

    asked = []

    def unordered(listing: Iterable[Issued], streams: object) -> object:
        asked.append(streams)
        return order(without_waits(listing))

    monkeypatch.setattr(sys.modules["runtime.choice"], "order", unordered)
    model = plain_stack(3)
    with pytest.raises(ProgramError, match=r"RAW: .*reads the slot while it may still be written"):
        runtime.offload(model, slots=2, policy="chain")
    assert len(asked) == 1
    before = list(asked)
    with offload_without_proof(model, slots=2, policy="chain", output_may_be_wrong=True):
        assert asked == before


def test_every_named_policy_is_here() -> None:
    assert {schedule.policy for schedule in NAMED} == set(policies.NAMED)


def test_of_two_runs_of_a_module_the_inner_one_was_abandoned() -> None:
    """Module 0 runs module 1, which runs module 0: interrupted, and again. The outer run of
    module 0 resumes."""
    model = hosts(2)
    first, second = model.layers
    calls: list[int] = []

    def in_first() -> None:
        calls.append(0)
        if len(calls) == 1:
            second(batches(1)[0])
        elif len(calls) == 2:
            raise KeyboardInterrupt

    def in_second() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            first(batches(1)[0])
        first(batches(1)[0])

    handles = [before_run(first.down, in_first), before_run(second.down, in_second)]
    with torch.no_grad(), runtime.offload(model, slots=1) as offloaded, offloaded.trace() as trace:
        first(batches(1)[0])
    for handle in handles:
        handle.remove()
    found = audit(again(trace))
    assert found.fits, str(found)
    assert (found.runs, found.abandoned) == (4, 1)


def test_old_weights_are_seen() -> None:
    """A module that writes into its weights runs from a slot that was filled before it did."""
    model = hosts(2)
    rotating = policies.rotating(Ring(2, 3))
    handle = before_run(model.layers[0].down, lambda: model.layers[0].up.bias.add_(1))
    with torch.no_grad(), runtime.offload(model, slots=3, policy=rotating) as offloaded:
        with offloaded.trace() as trace:
            outputs(model, batches(3))
        handle.remove()
        assert offloaded.report().misses > 0
    assert audit(again(trace)).fits
    trace.issued = [one for one in trace.issued if one.boundary.half != "reload"]
    (misfit,) = audit(again(trace)).misfits
    assert misfit.property == "identity"
    assert misfit.why == "slot 2 holds module 0 as it was before the host wrote its block"


def test_a_state_dict_during_a_run_issues_nothing() -> None:
    """All that runs is alive: there is nothing to mend."""
    model = hosts(3)
    handle = before_run(model.layers[1].down, lambda: model.state_dict() and None)
    with torch.no_grad(), runtime.offload(model, slots=2, policy="chain") as offloaded:
        with offloaded.trace() as trace:
            outputs(model, batches(2))
        assert offloaded.report().misses == 0
    handle.remove()
    found = audit(again(trace))
    assert found.fits, str(found)
    assert not [one for one in trace.issued if one.boundary.half == "resume"]
