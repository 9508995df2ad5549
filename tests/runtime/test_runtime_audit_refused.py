"""What must not fit: traces of unsafe rules, and of hooks with a fault."""

from __future__ import annotations

import pytest

import runtime
from runtime.hooks import Hooks
from runtime.unverified import offload_without_proof
from schedule import Ring
from schedule.audit import audit
from schedule.errors import ProgramError
from schedule.trace import Trace
from tests.runtime.models import batches, outputs
from tests.runtime.models import stack as plain_stack
from tests.runtime.test_runtime_audit import again, audited, run
from tests.runtime.test_runtime_nested import hosts


def unguarded(policy: str, ring: Ring, passes: int) -> Trace:
    model = plain_stack(ring.modules)
    with (
        offload_without_proof(
            model, slots=ring.slots, policy=policy, output_may_be_wrong=True
        ) as offloaded,
        offloaded.trace() as trace,
    ):
        outputs(model, batches(passes))
    return trace


def test_the_old_rule_is_unsafe_and_its_run_reads_the_wrong_weights() -> None:
    found = audit(again(unguarded("modular", Ring(3, 2), 2)))
    assert not found.fits
    first, *rest = str(found).splitlines()
    assert first == (
        "modular, 3 modules, 2 slots, on cpu: 36 operations, 6 copies, 6 runs, "
        "2 passes in order, 0 misses"
    )
    assert rest == [
        *[f"unsafe schedule: {violation}" for violation in found.findings.violations],
        "does not fit: line 12: [copy: copy module 0 into slot 0] (after module 1)",
        "  ownership: slot 0 holds module 2, which its next run reads",
        "  allowed there: no copy into slot 0 but of module 2",
        "does not fit: line 14: [compute: wait for landed[0], the copy of module 2] "
        "(module 2 begins)",
        "  meaning: what it waits for is not the latest copy into the slot, or not that module's",
        "  allowed there: a wait for the latest copy into the slot, recorded after it",
        "does not fit: line 15: [compute: run module 2 from slot 0] (module 2 begins)",
        "  identity: slot 0 holds module 0",
        "  allowed there: a copy of module 2 into slot 0",
    ]


def test_the_rule_that_is_safe_at_this_size_fits_without_a_guard() -> None:
    assert audited(unguarded("slot_local", Ring(3, 2), 2)).passes == 2


def test_with_the_guard_its_runs_are_right_but_it_overwrites_what_is_needed() -> None:
    model = plain_stack(3)
    with (
        offload_without_proof(
            model, slots=2, policy="modular", output_may_be_wrong=True, guard=True
        ) as offloaded,
        offloaded.trace() as trace,
    ):
        outputs(model, batches(2))
    found = audit(again(trace))
    assert not found.fits
    assert [misfit.property for misfit in found.misfits] == ["ownership"]
    assert found.misses == offloaded.report().misses == 3


def test_a_reload_that_never_comes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.hooks.arrives", lambda _: ("run",))
    model = plain_stack(3)
    with runtime.offload(model, slots=1, policy="chain") as offloaded, offloaded.trace() as trace:
        run(model, 2)
    found = audit(again(trace))
    assert [(misfit.property, misfit.at) for misfit in found.misfits] == [
        ("meaning", 0),
        ("identity", 1),
    ]
    assert found.misfits[1].why == "slot 0 holds module 0"


def test_a_slot_that_is_not_given_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hooks, "_resume", lambda *_: None)
    model = hosts(3)
    model.layers[0].inner = (model.layers[1],)
    with runtime.offload(model, slots=1, policy="chain") as offloaded, offloaded.trace() as trace:
        run(model, 0)
    (misfit,) = audit(again(trace)).misfits
    assert misfit.property == "program"
    assert misfit.why == "module 0 is not running"
    assert trace.issued[misfit.at].boundary == ("after", 0)


def test_a_run_without_operations_is_no_pass() -> None:
    model = plain_stack(3)
    with runtime.offload(model, slots=2) as offloaded, offloaded.trace() as trace:
        pass
    for one in (trace, again(trace)):
        with pytest.raises(ProgramError, match="line 2: the trace has no operations"):
            audit(one)
