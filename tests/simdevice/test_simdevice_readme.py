"""The README's models on the simulated device, where an embedding left behind fails."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import runtime
from runtime.arena import place_at
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE

README = Path(__file__).parents[2] / "README.md"
SECTIONS = (
    "transformers",
    "diffusers",
    "a plain nn.Module",
    "Capture a pass",
    "Give it gigabytes",
)
PLAIN = SECTIONS[2:]
WITH_OTHERS = SECTIONS[:3]  # something lies beside their layers


def block(section: str) -> str:
    text = README.read_text(encoding="ascii").split(f"\n### {section}\n")[1]
    return text.split("```python\n")[1].split("```")[0]


def run(section: str, sim: SimDevice) -> dict[str, Any]:
    if section not in PLAIN:
        pytest.importorskip(section)
    names: dict[str, Any] = {}
    with sim.steps(seed=1), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers sees that an embedding was left behind
        exec(block(section), names)
    return names


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a block saves a file


@pytest.mark.parametrize("section", SECTIONS)
def test_the_block_runs_on_the_device(section: str, sim: SimDevice) -> None:
    before = sim.counters().copies.get("host to device", 0)
    names = run(section, sim)
    assert names["device"] == torch.device("simdev")
    assert sim.counters().copies["host to device"] > before + 12
    assert {parameter.device.type for parameter in names["model"].parameters()} == {"cpu"}


@pytest.mark.parametrize("section", WITH_OTHERS)
def test_an_embedding_left_behind_fails(
    section: str, sim: SimDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    offload, left = runtime.offload, []

    def leaving(model: nn.Module, *arguments: Any, **named: Any) -> runtime.Offloaded:
        offloaded = offload(model, *arguments, **named)
        there = torch.device(DEVICE)
        embedding = next(one for one in model.parameters() if one.device == there)
        place_at(embedding, embedding.data.cpu())
        left.append(embedding)
        return offloaded

    monkeypatch.setattr(runtime, "offload", leaving)
    with pytest.raises(RuntimeError, match="same device"):
        run(section, sim)
    assert len(left) == 1
