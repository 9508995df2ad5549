"""Pass times of one model under several schemes, beside the plain model's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks import schemes
from benchmarks.interleaved import medians
from benchmarks.schemes import Layers, NotInstalled, Ready, Scheme

PLAIN = "plain"
NOT_INSTALLED = "not installed"
SCHEMES: dict[str, Scheme] = {
    "ringproof": schemes.ours,
    "accelerate cpu_offload": schemes.accelerate,
    "vLLM's scheme": schemes.prefetch,
    "diffusers group offloading": schemes.diffusers,
}


@dataclass(frozen=True, slots=True)
class PassLine:
    """model, device, scheme: what ran where and how.      equal: whether its output is the plain
    model's, bit for bit.    seconds: a pass, the median.   ratio: to the plain model's pass.
    bytes_device, bytes_locked: of weights on the device, and of page-locked host memory.
    All of these are None if the scheme's library is not installed, as note then says."""

    model: str
    device: str
    scheme: str
    equal: bool | None
    seconds: float | None
    ratio: float | None
    bytes_device: int | None
    bytes_locked: int | None
    note: str = ""

    def __str__(self) -> str:
        start = f"{self.model} on {self.device}, {self.scheme + ':':<28}"
        if self.seconds is None:
            return start + self.note
        equal = "" if self.equal else ", its output DIFFERS"
        note = f", {self.note}" if self.note else ""
        return (
            f"{start}{self.ratio:6.2f} times plain, {self.seconds * 1e3:8.2f} ms a pass, "
            f"{_mb(self.bytes_device)} on the device, {_mb(self.bytes_locked)} locked{equal}{note}"
        )

    def json(self) -> dict[str, Any]:
        return {"part": "passes"} | asdict(self)


def _mb(bytes_: int | None) -> str:
    return f"{(bytes_ or 0) / 1e6:7.2f} MB"


class Linears(nn.Module):
    """Linear layers, one after the other."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def linears(device: torch.device, layers: int, width: int, rounds: int) -> Iterable[PassLine]:
    """One line a scheme, the plain model's first."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, x = Linears(layers, width).eval(), torch.randn(32, width)
    name = f"{layers} Linear({width})"
    return compare(name, model, _layers, lambda one, on: one(x.to(on)), device, SCHEMES, rounds)


def _layers(model: nn.Module) -> nn.ModuleList:
    layers = model.layers
    assert isinstance(layers, nn.ModuleList)
    return layers


def seed(device: torch.device, full: bool, rounds: int) -> Iterable[PassLine]:
    """The shape that diverged under the old rule: Qwen3, 28 layers, one in a group of 8, K=2.
    full: of the size of Qwen3-0.6B."""
    name = f"Qwen3{'-0.6B' if full else ', narrow'}, 28 layers, one in 8 offloaded"
    try:
        model = _qwen3(full)
    except ImportError:
        yield PassLine(name, str(device), "transformers", *[None] * 5, NOT_INSTALLED)
        return
    tokens = torch.arange(16)[None]
    scheme = partial(schemes.ours, group_size=8, num_in_group=1)

    def one_pass(one: nn.Module, on: torch.device) -> torch.Tensor:
        logits: torch.Tensor = one(input_ids=tokens.to(on), use_cache=False).logits
        return logits

    yield from compare(name, model, _layers, one_pass, device, {"ringproof": scheme}, rounds)


def _qwen3(full: bool) -> nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    sizes = (1024, 3072, 16, 8, 128, 151_936) if full else (64, 192, 4, 2, 16, 512)
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    names += ("head_dim", "vocab_size")
    chosen = dict(zip(names, sizes, strict=True))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(Qwen3Config(num_hidden_layers=28, **chosen)).eval()
    return model.to(torch.bfloat16) if full else model


def compare(
    name: str,
    model: nn.Module,
    layers: Layers,
    one_pass: Callable[[nn.Module, torch.device], torch.Tensor],
    device: torch.device,
    chosen: Mapping[str, Scheme],
    rounds: int,
) -> Iterable[PassLine]:
    """All schemes ready at once, each with a model of its own, their passes in turn."""
    ready: dict[str, Ready] = {}
    with ExitStack() as stack, torch.no_grad():
        for scheme, make in ({PLAIN: schemes.plain} | dict(chosen)).items():
            try:
                ready[scheme] = make(copy.deepcopy(model), layers, device, stack)
            except NotInstalled:
                continue
        calls = {scheme: partial(one_pass, one.model, device) for scheme, one in ready.items()}
        expected = calls[PLAIN]().cpu()
        wait = _waiter(device)
        seconds = medians(calls, rounds, wait)
        for scheme in (PLAIN, *chosen):
            if scheme not in ready:
                yield PassLine(name, str(device), scheme, *[None] * 5, NOT_INSTALLED)
                continue
            one, took = ready[scheme], seconds[scheme]
            yield PassLine(
                model=name,
                device=str(device),
                scheme=scheme,
                equal=torch.equal(calls[scheme]().cpu(), expected),
                seconds=took,
                ratio=took / seconds[PLAIN],
                bytes_device=one.device(),
                bytes_locked=one.locked(),
                note=one.note,
            )


def _waiter(device: torch.device) -> Callable[[], object]:
    if device.type == "cpu":
        return lambda: None
    return partial(torch.accelerator.synchronize, device)
