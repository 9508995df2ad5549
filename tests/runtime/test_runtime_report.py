"""What is chosen when nothing is asked for, what the log says, and the report's numbers."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import runtime
from runtime import Report
from runtime.sizes import counted
from runtime.unverified import offload_without_proof
from schedule import Policy, Ring, policies
from schedule.arithmetic import first_users
from schedule.policy import derived_refills
from tests.runtime.models import WIDTH, after_run, batches, outputs, stack

LINEAR = (WIDTH + 1) * WIDTH * 4
BLOCK = 2 * LINEAR
ALIGNED = 256 + 2 * (256 + 256)  # the module's number, and its weights
REST = 2 * LINEAR + WIDTH * 4

# ---- the default


@pytest.mark.parametrize(("modules", "slots"), [(3, 1), (1, 1), (3, 2), (5, 3), (1, 2), (3, 5)])
def test_the_default_policy(modules: int, slots: int) -> None:
    name = "single_buffer" if slots == 1 else "double_buffer"
    with runtime.offload(stack(modules), slots=slots) as offloaded:
        assert offloaded.schedule == policies.named(name)(Ring(modules, slots))
        assert offloaded.report().policy == name


def test_the_default_number_of_slots_is_two() -> None:
    with runtime.offload(stack(4)) as offloaded:
        assert offloaded.schedule.ring == Ring(4, 2)


@pytest.mark.parametrize(("modules", "slots"), [(1, 1), (1, 2), (3, 3), (3, 4), (4, 9)])
def test_with_a_slot_for_each_module_nothing_is_copied_after_the_preload(
    modules: int, slots: int
) -> None:
    model = stack(modules)
    with runtime.offload(model, slots=slots) as offloaded:
        outputs(model, batches(3))
        report = offloaded.report()
        assert (report.preloaded, report.copies, report.copies_a_pass) == (modules, 0, 0.0)
        assert report.bytes_copied == modules * ALIGNED
        assert report.bytes_slots == modules * ALIGNED


# ---- the log


def logged(caplog: pytest.LogCaptureFixture, **options: object) -> str:
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="ringproof.runtime"):
        runtime.offload([nn.Linear(500, 500) for _ in range(5)], **options).close()
    record, closed = caplog.records
    for one in (record, closed):
        assert (one.name, one.levelno) == ("ringproof.runtime", logging.INFO)
    assert closed.getMessage().startswith("closed after 0 runs")
    return record.getMessage()


def expected(slots: int, policy: str, copies: int, saved: int) -> str:
    text = (
        f"offloaded 5 modules of up to 1.0 MB over {counted(slots, 'slot')}, policy {policy}: "
        f"{copies} copies a pass"
    )
    return f"{text}; one slot more (1.0 MB) would save {saved} of them" if saved else text


def test_the_log_says_what_was_chosen_and_what_one_slot_more_would_save(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """double_buffer copies N - K + 2 modules; if that makes three, one owns its slot alone."""
    assert logged(caplog, slots=3) == expected(3, "double_buffer", 4, 2)
    assert logged(caplog, slots=2) == expected(2, "double_buffer", 5, 1)
    assert logged(caplog, slots=4) == expected(4, "double_buffer", 2, 2)
    assert logged(caplog, slots=5).startswith(expected(5, "double_buffer", 0, 0))
    assert logged(caplog, slots=1) == expected(1, "single_buffer", 5, 0)
    assert logged(caplog, slots=1, policy="single_buffer") == expected(1, "single_buffer", 5, 1)
    assert logged(caplog, slots=2, policy="slot_local") == expected(2, "slot_local", 5, 0)


def test_the_log_promises_nothing_that_is_not_safe(caplog: pytest.LogCaptureFixture) -> None:
    """At five slots modular is safe, at one slot too; at two it is not."""
    assert logged(caplog, slots=1, policy="modular") == expected(1, "modular", 5, 0)


def test_the_log_of_a_ready_schedule_says_nothing_about_other_sizes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    schedule = policies.chain(Ring(5, 2))
    text = logged(caplog, slots=2, policy=schedule)
    assert text == "offloaded 5 modules of up to 1.0 MB over 2 slots, policy chain: 5 copies a pass"


def test_the_log_says_sizes_in_megabytes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ringproof.runtime")
    model = nn.Sequential(*(nn.Linear(1000, 1000, bias=False) for _ in range(3)))
    runtime.offload(model, slots=2).close()
    assert "3 modules of up to 4.0 MB over 2 slots" in caplog.text
    assert "one slot more (4.0 MB) would save 2 of them" in caplog.text


def test_by_default_the_log_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    runtime.offload(stack(3), slots=2).close()
    assert not caplog.records


# ---- the report


def report_of(slots: int, policy: str, passes: int) -> Report:
    model = stack(3)
    with runtime.offload(model, slots=slots, policy=policy) as offloaded:
        outputs(model, batches(passes))
        return offloaded.report()


def test_the_numbers_of_one_model() -> None:
    """Three modules, two slots; slot_local copies module 1 over itself in every pass."""
    assert report_of(2, "slot_local", 4) == Report(
        policy="slot_local",
        modules=3,
        slots=2,
        device="cpu",
        verified=True,
        guard=True,
        bytes_whole=3 * BLOCK + REST,
        bytes_offloaded=3 * BLOCK,
        bytes_slots=2 * ALIGNED,
        bytes_rest=REST,
        bytes_locked=0,
        bytes_pageable=3 * BLOCK,
        bytes_reserved=None,
        bytes_free=None,
        preloaded=2,
        copies=4 * 3,
        bytes_copied=(2 + 4 * 3) * ALIGNED,
        redundant=4 * 1,
        runs=4 * 3,
        misses=0,
        kept=("layers.1",),
        largest=(("embed.weight", 256), ("head.weight", 256), ("scale", 32), ("embed.bias", 32)),
        stay=(),
    )


def test_what_follows_from_the_numbers() -> None:
    report = report_of(2, "slot_local", 4)
    assert (report.passes, report.copies_a_pass) == (4.0, 3.0)
    assert report.bytes_device == 2 * ALIGNED + REST
    assert report.bytes_saved == 3 * BLOCK - 2 * ALIGNED
    assert report_of(2, "chain", 4).copies_a_pass == 2.0
    assert report_of(2, "chain", 4).redundant == 0
    assert report_of(2, "chain", 0).copies_a_pass == 0.0
    assert report_of(3, "slot_local", 2).redundant == 2 * 3
    assert report_of(5, "slot_local", 2).bytes_saved == 3 * BLOCK - 3 * ALIGNED < 0


def large() -> nn.Sequential:
    """Three layers of a megabyte, and something beside them."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(500, 500) for _ in range(3)), nn.BatchNorm1d(500)).eval()


def test_the_text_of_the_report() -> None:
    model = large()
    with runtime.offload(model, list(model[:3]), slots=2, policy="slot_local") as offloaded:
        with torch.no_grad():
            for _ in range(2):
                model(torch.zeros(1, 500))
        assert str(offloaded.report()) == "\n".join(
            [
                "schedule   slot_local, 3 modules over 2 slots, verified",
                "guard      on; 0 misses in 6 runs",
                "device     cpu: 2.0 MB in slots, 8.0 KB beside them; 1.0 MB saved of 3.0 MB",
                "host       0.0 MB locked, 3.0 MB pageable",
                "copies     2 to preload, then 3.0 a pass, 2 redundant; 8.0 MB in all",
                "kept       1",
            ]
        )


def test_the_text_of_the_report_without_proof_and_guard() -> None:
    model = large()
    model[0].bias = model[3].bias
    with offload_without_proof(
        model, list(model[:3]), slots=2, policy="modular", output_may_be_wrong=True
    ) as offloaded:
        assert str(offloaded.report()) == "\n".join(
            [
                "schedule   modular, 3 modules over 2 slots, NOT VERIFIED: the text may be wrong",
                "guard      OFF: wrong weights go unnoticed; 0 misses in 0 runs",
                "device     cpu: 2.0 MB in slots, 8.0 KB beside them; 1.0 MB saved of 3.0 MB",
                "host       0.0 MB locked, 3.0 MB pageable",
                "copies     2 to preload, then 0.0 a pass, 0 redundant; 2.0 MB in all",
                "kept       1",
                "shared     0.bias stay on the device",
            ]
        )


def test_misses_are_in_the_report() -> None:
    model = stack(3)
    with torch.no_grad(), runtime.offload(model, slots=2, policy="chain") as offloaded:
        model.layers[2](torch.zeros(1, WIDTH))
        report = offloaded.report()
        # The reload, and the schedule's own copy of module 0 after module 2.
        assert (report.runs, report.misses, report.copies) == (1, 1, 2)
        assert "1 miss in 1 run\n" in str(report)


def test_a_copy_of_a_newer_version_is_not_redundant() -> None:
    """slot_local copies module 1 over itself after each of its runs."""
    model = stack(3)
    with torch.no_grad(), runtime.offload(model, slots=2, policy="slot_local") as offloaded:
        outputs(model, batches(1))
        assert offloaded.report().redundant == 1
        other = model.layers[0].up.weight
        handle = after_run(model.layers[1].down, lambda: other.add_(1))
        outputs(model, batches(1))  # module 0's weights change, which is no matter to module 1
        handle.remove()
        assert offloaded.report().redundant == 2
        master = dict(model.layers[1].up.named_parameters())["weight"]
        handle = after_run(model.layers[1].down, lambda: master.add_(1))
        outputs(model, batches(1))
        handle.remove()
        assert offloaded.report().redundant == 2


def test_the_report_after_close_is_the_last_one() -> None:
    model = stack(3)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        outputs(model, batches(2))
        before = offloaded.report()
    outputs(model, batches(2))
    assert offloaded.report() == before


def test_the_words_for_an_offload() -> None:
    with runtime.offload(stack(3), slots=2, policy="chain") as offloaded:
        assert repr(offloaded) == "<Offloaded 3 modules over 2 slots, chain on cpu>"
    assert repr(offloaded) == "<Offloaded 3 modules over 2 slots, closed>"


def test_a_policy_object_of_a_user_is_named() -> None:
    mine = Policy("mine", lambda step, ring: step * step % ring.slots)
    with runtime.offload(stack(5), slots=3, policy=mine) as offloaded:
        slot_of = (0, 1, 1, 0, 1)
        assert offloaded.schedule.slot_of == slot_of
        assert offloaded.schedule.after == derived_refills(slot_of, first_users(slot_of, 3), 5)
        assert offloaded.report().policy == "mine"
        assert offloaded.report().bytes_slots == 2 * ALIGNED
