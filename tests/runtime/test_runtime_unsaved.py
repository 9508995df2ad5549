"""Where no device memory is saved, the report and the log say so in a sentence, and why."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import runtime
from runtime import Report

NAME = "ringproof.runtime"
EACH = (
    "each of the 3 modules has a slot to itself; give fewer slots than modules, or leave the model "
    "on the device"
)
ONLY = (
    "the only module needs a slot of its own size, however often it runs in a pass; offload the "
    "modules in it, or leave it on the device"
)
LARGE = (
    "the 2 slots, as large as the largest modules that run from them and aligned, take as much as "
    "all modules do; give fewer slots, or another policy"
)


def layers(*widths: int) -> list[nn.Module]:
    return [nn.Linear(500, width) for width in widths]


CASES = {
    "a slot each": (layers(500, 500, 500), 3, None, EACH),
    "more slots than modules": (layers(500, 500, 500), 4, None, EACH),
    "a single module": (layers(500), 2, None, ONLY),
    "a single module and slot": (layers(500), 1, None, ONLY),
    # Every module comes into every slot, in one pass or another.
    "slots as large as all": (layers(1, 1, 900), 2, "rotating", LARGE),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_saved(name: str, caplog: pytest.LogCaptureFixture) -> None:
    modules, slots, policy, why = CASES[name]
    with (
        caplog.at_level(logging.INFO, NAME),
        runtime.offload(modules, slots=slots, policy=policy) as offloaded,
    ):
        report = offloaded.report()
    assert report.bytes_saved <= 0
    assert report.unsaved == why
    rows = dict(report.rows())
    assert rows["saved"] == f"nothing: {why}"
    assert rows["device"].endswith(
        f"beside them; nothing saved of {report.bytes_whole / 1e6:.1f} MB"
    )
    assert "-0.0" not in str(report)
    assert caplog.messages[0].endswith(f"copies a pass; no device memory is saved: {why}")


def test_something_is_saved(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, NAME),
        runtime.offload(layers(500, 500, 500), slots=2) as offloaded,
    ):
        report = offloaded.report()
    assert report.unsaved == ""
    assert "saved" not in dict(report.rows())
    assert "1.0 MB saved of 3.0 MB" in str(report)
    assert "no device memory" not in caplog.text


def test_one_group_that_runs_several_times_in_a_pass() -> None:
    """As ALBERT has it: one module is found, and it alone is larger than what it would save."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.groups = nn.ModuleList([nn.Linear(500, 500)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = self.groups[0](x)
            return x

    model, x = Model(), torch.randn(2, 500)
    with torch.no_grad():
        expected = model(x)
        with runtime.offload(model) as offloaded:
            assert torch.equal(model(x), expected)
            report: Report = offloaded.report()
    assert (report.modules, report.runs, report.copies) == (1, 3, 0)
    assert report.unsaved == ONLY
