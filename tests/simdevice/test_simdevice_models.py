"""Whole models on the device are bit-equal to the CPU."""

from __future__ import annotations

import copy
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.simdevice import device
from tests.simdevice.device import ADVERSARIES, NoCompiler, SimDevice
from tests.simdevice.helpers import DEVICE, OTHER


def stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *[m for _ in range(8) for m in (nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))]
    )


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("mode", ["steps", "threads"])
def test_a_stack_of_linear_layers(sim: SimDevice, mode: str, adversary: str) -> None:
    model, inputs = stack(), torch.randn(5, 64)
    expected = model(inputs)
    model.to(DEVICE)
    timing = sim.steps if mode == "steps" else sim.threads
    with timing(1, adversary):
        there = inputs.to(DEVICE)
        sim.reset_counters()
        result = model(there)
        assert sim.counters().waits == 0
        assert torch.equal(result.cpu(), expected)


@pytest.mark.usefixtures("timing")
def test_a_model_over_two_devices() -> None:
    model, inputs = stack(), torch.randn(5, 64)
    expected = model(inputs)
    first, second = model[:12].to(DEVICE), model[12:].to(OTHER)
    assert torch.equal(second(first(inputs.to(DEVICE)).to(OTHER)).cpu(), expected)


@pytest.mark.usefixtures("timing")
def test_a_convolution() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2))
    inputs = torch.randn(2, 3, 12, 12)
    expected = model(inputs)
    assert torch.equal(model.to(DEVICE)(inputs.to(DEVICE)).cpu(), expected)


@pytest.mark.usefixtures("timing")
def test_gradients() -> None:
    model, inputs = stack(), torch.randn(5, 64)
    there = copy.deepcopy(model).to(DEVICE)
    with torch.enable_grad():
        model(inputs).square().sum().backward()
        there(inputs.to(DEVICE)).square().sum().backward()
    for ours, theirs in zip(there.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours.grad.cpu(), theirs.grad)


@pytest.mark.usefixtures("timing")
def test_saved_and_loaded() -> None:
    model, file = stack().to(DEVICE), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file)
    expected = stack().state_dict()
    assert {value.device for value in loaded.values()} == {torch.device(DEVICE)}
    assert all(torch.equal(loaded[name].cpu(), value) for name, value in expected.items())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("mode", ["steps", "threads"])
def test_a_transformers_model(sim: SimDevice, mode: str, attention: str) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        attn_implementation=attention,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval()
    tokens = torch.randint(0, 256, (2, 9))
    # Foreign devices have no fused attention; the CPU has one, which rounds differently.
    with sdpa_kernel(SDPBackend.MATH):
        logits = model(tokens).logits
        text = model.generate(tokens, max_new_tokens=8, do_sample=False)
    model.to(DEVICE)
    with sim.steps(1) if mode == "steps" else sim.threads(1, microseconds=200):
        there = tokens.to(DEVICE)
        sim.reset_counters()
        result = model(there).logits
        counters = sim.counters()
        assert torch.equal(result.cpu(), logits)
        assert counters.kernels > 50 * max(1, counters.waits)
        assert torch.equal(model.generate(there, max_new_tokens=8, do_sample=False).cpu(), text)


def test_a_compiled_model_equals_it(sim: SimDevice) -> None:
    model, inputs = stack(), torch.randn(5, 64)
    expected = model(inputs)
    compiled = torch.compile(model.to(DEVICE), backend="aot_eager", fullgraph=True)
    with sim.steps(1):
        assert torch.equal(compiled(inputs.to(DEVICE)).cpu(), expected)


def test_no_compiler_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device, "_CACHE", tmp_path)
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(NoCompiler, match="no C\\+\\+ compiler"):
        device._build()
    assert not list(tmp_path.iterdir())


def test_the_device_is_started_once(sim: SimDevice) -> None:
    assert device.start() is sim
    assert torch.accelerator.current_accelerator() == torch.device("simdev")
    assert sys.modules["torch"].simdev.device_count() == 2


def test_the_readme_runs() -> None:
    text = (Path(__file__).parent / "README.md").read_text()
    names: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], names)
    assert names["seen"].tolist() == [0, 0, 1, 1]
    assert names["slot"].tolist() == [1] * 4
