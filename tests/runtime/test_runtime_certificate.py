"""A model offloaded by a certificate: its schedule alone, believed only once it is checked anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from schedule import CertificateError, OffloadError, Ring, policies, verify
from schedule.recheck import digest

WIDTH = 32
SOUND: dict[str, Any] = json.loads(verify(policies.balanced(Ring(5, 2))).certificate())


def model_of() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(5)))


@torch.no_grad()
@pytest.mark.parametrize("as_file", [True, False])
def test_it_runs_the_certificate_s_schedule(as_file: bool, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_text(json.dumps(SOUND))
    x = torch.randn(2, WIDTH)
    model, expected = model_of(), model_of()(x)
    given = tmp_path / "it.json" if as_file else SOUND
    with runtime.offload(list(model), certificate=given) as offloaded:
        assert offloaded.schedule == policies.balanced(Ring(5, 2))
        assert offloaded.verified
        assert torch.equal(model(x), expected)
        report = offloaded.report()
    assert (report.copies, report.misses) == (5, 0)  # the preload is counted apart
    assert report.bytes_device < report.bytes_whole / 2


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], type[ValueError], str]] = {
    "a lie": (
        {"slot_of": [1, 1, 0, 1, 0]},
        {},
        CertificateError,
        "the certificate is refused; not true is: period 0, run 0: slot 1 holds module 0",
    ),
    "a policy beside it": ({}, {"policy": "balanced"}, OffloadError, "a policy or a certificate"),
    "other slots": ({}, {"slots": 3}, OffloadError, "is for 2 slots, but this offload has 3"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_leaves_the_model_alone(what: str) -> None:
    changes, more, error, said = REFUSED[what]
    data = SOUND | changes
    data = data | {"sha256": digest(data)}
    model = model_of()
    before = list(model.parameters())
    with pytest.raises(error, match=said):
        runtime.offload(list(model), certificate=data, **more)
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert not model[0]._forward_pre_hooks


def test_another_number_of_modules_is_refused() -> None:
    with pytest.raises(OffloadError, match="is for 5 modules, but this offload has 4"):
        runtime.offload(list(model_of())[:4], certificate=SOUND)


def test_the_same_slots_may_be_said_and_two_are_the_default() -> None:
    with runtime.offload(list(model_of()), certificate=SOUND, slots=2) as offloaded:
        assert offloaded.schedule.ring == Ring(5, 2)
    with runtime.offload(list(model_of())) as offloaded:
        assert offloaded.schedule.ring == Ring(5, 2)
