"""Which streams a device gets: inline ones on a CPU, else those of the current accelerator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from runtime import offload
from runtime.device import AcceleratorStreams, InlineStreams, streams_of
from schedule import OffloadError
from schedule.operations import COPY
from tests.runtime.models import batches, outputs, same, stack

CPU = torch.device("cpu")


def test_on_a_plain_cpu_everything_is_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: None)
    for asked in (None, "cpu", CPU):
        streams = streams_of(asked)
        assert isinstance(streams, InlineStreams)
        assert streams.device == CPU


def test_a_build_for_an_accelerator_that_is_not_there_takes_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch names what it was built for, unless it is asked what there is."""

    def current(check_available: bool = False) -> torch.device | None:
        return None if check_available else torch.device("cuda")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current)
    assert isinstance(streams_of(None), InlineStreams)
    with pytest.raises(OffloadError, match=r"but this process's accelerator is none"):
        streams_of("cuda")


def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has a CUDA device, of which number 3 is current."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    monkeypatch.setattr(torch, "Stream", lambda device: f"a stream of {device}")


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        (None, 3),
        ("cuda", 3),
        ("cuda:1", 1),
        (torch.device("cuda", 0), 0),
        (torch.device("cuda"), 3),
    ],
)
def test_the_current_accelerator_is_the_default(
    asked: Any, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerator(monkeypatch)
    streams = streams_of(asked)
    assert isinstance(streams, AcceleratorStreams)
    assert streams.device == torch.device("cuda", index)
    assert streams._stream(COPY)() == f"a stream of cuda:{index}"


def test_a_cpu_may_be_asked_for_beside_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator(monkeypatch)
    assert isinstance(streams_of("cpu"), InlineStreams)
    model = stack(3)
    with offload(model, slots=2, device="cpu"):
        assert same(outputs(model, batches(1)), outputs(stack(3), batches(1)))


def test_there_is_one_cpu() -> None:
    with pytest.raises(OffloadError, match=r"^device cpu:1: there is one CPU; pass device='cpu'$"):
        streams_of("cpu:1")


def test_another_accelerator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator(monkeypatch)
    with pytest.raises(
        OffloadError, match=r"device xpu was asked for, but .* accelerator is cuda;"
    ):
        streams_of("xpu")
