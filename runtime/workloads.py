"""Measure what a language model's prefill and decoding cost: ``python -m runtime profile``."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from runtime.bench import subject_of
from runtime.demo import Subject
from runtime.device import streams_of
from runtime.profile import Profile, profiled
from runtime.sizes import counted, megabytes
from schedule import costsfile
from schedule.costs import Costs, Workload
from schedule.errors import OffloadError
from schedule.files import write_text

CACHES = ("cache", "past_key_values", "cache_params")
"""What versions and models of transformers call it, as an argument and in the output."""
PREFILL, DECODE = "prefill", "decode"


def measure(subject: Subject, prompt: int | None, tokens: int, device: torch.device) -> Profile:
    """The costs of a request: one pass over the prompt, of so many tokens or its own, and so many
    passes over one token each."""
    model: Any = subject.model
    asked = subject.inputs["input_ids"]
    if prompt is not None:
        most, generator = model.get_input_embeddings().num_embeddings, torch.Generator()
        asked = torch.randint(0, most, (1, prompt), generator=generator.manual_seed(0))
    found = profiled(
        model,
        inputs=passes(model, asked.to(device)),
        weights={PREFILL: 1.0, DECODE: float(tokens)},
        device=device,
    )
    digest = found.costs.model.rpartition(" ")[2]
    return replace(found, costs=replace(found.costs, model=f"{subject.name} {digest}"))


def passes(model: Any, prompt: torch.Tensor) -> dict[str, Callable[[], object]]:
    """What runs each workload; each decoding pass goes on where the one before ended."""
    known = inspect.signature(model.forward).parameters
    options: dict[str, Any] = {"use_cache": True}
    if "logits_to_keep" in known:
        options["logits_to_keep"] = 1  # as generate() has it
    kept: dict[str, Any] = {}  # the cache, by its argument's name

    def prefill() -> object:
        return model(input_ids=prompt, **options)

    def decode() -> object:
        if not kept:
            output = prefill()
            kept.update({name: getattr(output, name) for name in CACHES if name in known})
        return model(input_ids=prompt[:, -1:], **kept, **options)

    return {PREFILL: prefill, DECODE: decode}


def run(
    name: str, file: str, prompt: int | None, tokens: int, device: str | None, as_json: bool
) -> int:
    """Write the costs file, and print what is in it. OffloadError for a model that can't be had,
    and ValueError for a file that can't be written, before anything is measured."""
    if prompt is not None and prompt < 1:
        raise OffloadError(f"--prompt must be at least 1, got {prompt}")
    chosen = streams_of(device).device
    _require_writable(file)
    found = measure(subject_of(name), prompt, tokens, chosen)
    write_text(file, costsfile.text(found.costs))
    if as_json:
        alone = {
            one.name: list(times)
            for one, times in zip(found.costs.workloads, found.alone, strict=True)
        }
        data = {"file": file, "alone": alone, "costs": costsfile.document(found.costs)}
        print(json.dumps(data, indent=2))
    else:
        print("\n".join(rows(found)))
        print(f"written: {file}")
    return 0


def _require_writable(file: str) -> None:
    if not Path(file).absolute().parent.is_dir() or Path(file).is_dir():
        raise OffloadError(f"can't write {file!r}; name a file in a folder of yours")


def rows(found: Profile) -> Iterator[str]:
    """The profile as a table: times in milliseconds, beside a copy and alone."""
    costs = found.costs
    link = costs.link
    yield f"{costs.model} on {costs.device}, torch {costs.torch}"
    yield (
        f"{counted(len(costs.modules), 'module')} of {megabytes(sum(costs.sizes))} in all, "
        f"{megabytes(costs.resident)} beside them"
    )
    yield (
        f"link: {link.bandwidth / 1e9:.2f} GB/s, and {link.latency / 1e3:.1f} us a copy; "
        + ("compute waits while it copies" if not link.streams else "compute goes on beside it")
    )
    width = max(12, *(len(module.name) for module in costs.modules))
    columns = [column for one in costs.workloads for column in _names(costs, one)]
    head = f"{'ms':<{width}}{'bytes':>12}{'copy':>10}"
    yield head + "".join(f"{name:>16}" for name in columns)
    for at, module in enumerate(costs.modules):
        times = [
            time
            for one in zip(costs.workloads, found.alone, strict=True)
            for time in _times(costs, *one, at)
        ]
        copy = _ms(link.time(module.size))
        yield (
            f"{module.name:<{width}}{megabytes(module.size):>12}{copy:>10}"
            + "".join(f"{_ms(time):>16}" for time in times)
        )
    beside = [sum(one.between) for one in costs.workloads for _ in _names(costs, one)]
    yield f"{'beside them':<{width}}{'':>22}" + "".join(f"{_ms(time):>16}" for time in beside)


def _names(costs: Costs, workload: Workload) -> list[str]:
    name = f"{workload.name} x{workload.weight:g}"
    return [name, "alone"] if costs.link.streams else [name]


def _times(costs: Costs, workload: Workload, alone: tuple[int, ...], at: int) -> list[int]:
    return [workload.compute[at], alone[at]] if costs.link.streams else [workload.compute[at]]


def _ms(time: float) -> str:
    return f"{time / 1e6:.3f}"
