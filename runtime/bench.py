"""Measure a language model whole and offloaded, in one run: ``python -m runtime bench``.

Only the ratios of one run mean something: machines differ, and so do their minutes.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch

from runtime.choice import planned, require_safe
from runtime.demo import HOW_TO_GET_IT, Subject, local, random_qwen3, smollm2
from runtime.device import streams_of
from runtime.host import chunk_of, limit_of
from runtime.offload import offload
from runtime.planning import costs_of, fitted, require_alone
from runtime.report import Report
from runtime.sizes import counted, megabytes
from schedule.loading import load
from schedule.ring import Ring

DEMO = "demo"
LAYERS = ("group_size", "keep")
BUDGET = ("memory", "costs")
OPTIONS = ("slots", "policy", *LAYERS, *BUDGET, "pin", "chunk")
"""The arguments of ``offload`` that can be chosen; of all but the last two it depends on the model
whether they are right."""


@dataclass(frozen=True, slots=True)
class Walk:
    """One greedy answer. prefill: seconds of the pass over the prompt; decode: the median of
    the passes over one token, None if there was none."""

    tokens: list[int]
    prefill: float
    decode: float | None


@dataclass(frozen=True, slots=True)
class Bench:
    """prompt: its tokens.      plain: None if the whole model does not fit the device.
    bytes_a_pass: copied; the preload and the first pass are left out."""

    name: str
    prompt: int
    plain: Walk | None
    offloaded: Walk
    report: Report
    bytes_a_pass: float

    @property
    def equal(self) -> bool | None:
        """Whether the tokens are the whole model's; None if there is none to compare with."""
        return None if self.plain is None else self.plain.tokens == self.offloaded.tokens

    def as_dict(self) -> dict[str, Any]:
        """Times in seconds, sizes in bytes; the ratios are offloaded to plain."""
        ratios = None
        if self.plain is not None:
            ratios = {
                "prefill": _ratio(self.offloaded.prefill, self.plain.prefill),
                "decode": _ratio(self.offloaded.decode, self.plain.decode),
            }
        return {
            "model": self.name,
            "prompt_tokens": self.prompt,
            "equal": self.equal,
            "plain": None if self.plain is None else asdict(self.plain),
            "offloaded": asdict(self.offloaded),
            "ratios": ratios,
            "bytes_a_pass": self.bytes_a_pass,
            "report": self.report.as_dict(),
        }

    def __str__(self) -> str:
        report = self.report
        new = len(self.offloaded.tokens)
        lines = [
            f"{self.name} on {report.device}: {self.prompt} tokens of prompt, {new} new ones",
            f"{report.policy}, {counted(report.modules, 'module')} over "
            f"{counted(report.slots, 'slot')}; copies and bytes are a pass",
            *([report.plan] if report.plan else []),
            f"{'':<10}{'prefill':>12}{'decode':>12}{'on the device':>16}"
            f"{'copies':>9}{'bytes':>13}{'misses':>8}",
        ]
        if self.plain is not None:
            lines.append(
                f"{'plain':<10}{_ms(self.plain.prefill):>12}{_ms(self.plain.decode):>12}"
                f"{megabytes(report.bytes_whole):>16}"
            )
        lines.append(
            f"{'offloaded':<10}{_ms(self.offloaded.prefill):>12}{_ms(self.offloaded.decode):>12}"
            f"{megabytes(report.bytes_device):>16}{report.copies_a_pass:>9.1f}"
            f"{megabytes(self.bytes_a_pass):>13}{report.misses:>8}"
        )
        if self.plain is None:
            return "\n".join([*lines, "The whole model does not fit, so nothing is compared."])
        prefill = _ratio(self.offloaded.prefill, self.plain.prefill)
        decode = _ratio(self.offloaded.decode, self.plain.decode)
        device = report.bytes_device / report.bytes_whole
        lines.append(f"{'ratio':<10}{_two(prefill):>12}{_two(decode):>12}{device:>16.2f}")
        equal = "The tokens are equal." if self.equal else "The tokens DIFFER; please report it."
        return "\n".join([*lines, equal])


def _ratio(ours: float | None, plain: float | None) -> float | None:
    return None if ours is None or plain is None else ours / plain


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _two(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def measure(subject: Subject, tokens: int, device: torch.device, options: dict[str, Any]) -> Bench:
    """The model whole, if it fits the device, and offloaded with these OPTIONS. What is wrong with
    them is an error before the whole model runs."""
    options = checked(subject, device, options)
    plain = whole(subject, tokens, device)
    with offload(subject.model, device=device, **options) as offloaded:
        walk(subject, 1, device)  # the first pass warms up
        before = offloaded.report()
        ours = walk(subject, tokens, device)
        report = offloaded.report()
    bytes_ = (report.bytes_copied - before.bytes_copied) / (report.passes - before.passes)
    prompt = subject.inputs["input_ids"].shape[1]
    return Bench(subject.name, prompt, plain, ours, report, bytes_)


def checked(subject: Subject, device: torch.device, options: dict[str, Any]) -> dict[str, Any]:
    """The options, with the costs for which a budget is planned; an error if they can't be used."""
    layers = {name: options[name] for name in LAYERS}
    if options["memory"] is None:
        ring = {name: options[name] for name in ("slots", "policy")}
        require_safe(planned(subject.model, **ring, **layers)[1])
        return options
    budget = [options[name] for name in BUDGET]
    _, plan = fitted(subject.model, None, *budget, device=device, **layers)
    return options | {"costs": plan.costs}


def whole(subject: Subject, tokens: int, device: torch.device) -> Walk | None:
    """The plain model's answer on the device, or None if it does not fit there."""
    try:
        subject.model.to(device)
        walk(subject, 1, device)
        return walk(subject, tokens, device)
    except torch.OutOfMemoryError:
        return None
    finally:
        subject.model.to("cpu")


class Clock:
    """A streamer of transformers that only notes when the prompt and each token came."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens: torch.Tensor) -> None:
        del tokens  # they are on the host by now, so the device has been waited for
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to be said."""


def walk(subject: Subject, tokens: int, device: torch.device) -> Walk:
    """The greedy answer, and how long each of its passes took."""
    inputs = {name: tensor.to(device) for name, tensor in subject.inputs.items()}
    clock = Clock()
    found = subject.model.generate(
        **inputs, max_new_tokens=tokens, do_sample=False, pad_token_id=0, streamer=clock
    )
    new = found[0, inputs["input_ids"].shape[1] :].tolist()
    prefill, *decode = (after - before for before, after in pairwise(clock.times))
    return Walk(new, prefill, statistics.median(decode) if decode else None)


def run(name: str, tokens: int, device: str | None, as_json: bool, options: dict[str, Any]) -> int:
    """Print the bench; 1 if the tokens differ. OffloadError for a model that can't be had.
    options: a value for each of OPTIONS."""
    # Bad sizes, devices and policies are said before the model is loaded.
    if options["slots"] is not None:
        Ring(1, options["slots"])
    chosen = ("memory", "costs", "slots", "policy")
    require_alone(**{name: options[name] for name in chosen})
    if options["costs"] is not None:
        options = options | {"costs": costs_of(options["costs"])}
    limit_of(options["pin"])
    chunk_of(options["chunk"])
    if options["policy"] is not None:
        load(options["policy"])
    there = streams_of(device).device
    found = measure(subject_of(name), tokens, there, options)
    print(json.dumps(found.as_dict(), indent=2) if as_json else found)
    return 1 if found.equal is False else 0


def subject_of(name: str) -> Subject:
    """The model of this name: the demo's, a folder's, or one of the local cache."""
    if name != DEMO:
        return local(name)
    subject = smollm2()
    if subject is None:
        subject = random_qwen3()
        print(HOW_TO_GET_IT, file=sys.stderr)
    return subject
