"""Reports of offloading that did nothing, and of bytes and time that nobody counted (REPORTS 3.11);
of compiled code (3.6) what is not in ``tests/runtime/test_runtime_compile.py``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from schedule import OffloadError, Ring, policies, verify
from schedule.operations import COMPUTE, COPY, Copy, Run, Streams
from schedule.placed import place
from schedule.program import lower
from schedule.table import PRELOAD
from tests.runtime.models import Stack, batches, copies_in, outputs, same, stack


class Hollow(nn.Module):
    """A layer whose weights are its parent's, as in a runner that moved them elsewhere."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_the_flag_is_accepted_and_nothing_is_offloaded() -> None:
    """vLLM #50672, #48468, #56283: one runner never installed the offloader. Nothing to offload is
    an error, and what is offloaded is counted."""
    model = stack(3)
    shared = model.head.weight
    hollow = Stack([Hollow(shared) for _ in range(3)])
    hollow.head.weight = shared
    with pytest.raises(OffloadError, match="layers"):
        runtime.offload(hollow, hollow.layers, slots=1)
    with runtime.offload(model, slots=1) as offloaded:
        report = offloaded.report()
        layers = sum(p.nbytes for p in model.layers.parameters())
        assert report.bytes_offloaded == layers > 0
        assert report.bytes_saved == layers - report.bytes_slots > 0


def test_a_selector_that_matches_nothing() -> None:
    """vLLM #53120, #53931: only one stack was visited, and a selector for another was ignored
    without a word. Here it is an error that lists what there is."""
    model = stack(3)
    for options in (
        {"layers": "decoder.blocks.*"},
        {"keep": "layers.9"},
        {"parameters": "experts"},
    ):
        with pytest.raises(OffloadError) as caught:
            runtime.offload(model, slots=1, **options)
        assert next(iter(options.values())) in str(caught.value)
        assert "layers" in str(caught.value)
    with runtime.offload(model, "layers.*", slots=1) as offloaded:
        assert len(offloaded.selection.names) == 3


def bytes_moved(policy: str, slots: int, passes: int) -> int:
    model = stack(6)
    with runtime.offload(model, slots=slots, policy=policy) as offloaded:
        first = offloaded.report().bytes_copied
        outputs(model, batches(passes))
        report = offloaded.report()
        assert report.copies == copies_in(offloaded.schedule, passes)
        return report.bytes_copied - first


def test_prefetching_moves_twice_the_bytes() -> None:
    """llama.cpp #21067, a comment: with prefetch 2.06 times the bytes were moved. What is copied
    ahead is what would be copied on demand: the bytes are equal, or fewer where modules stay."""
    on_demand = bytes_moved("on_demand", 2, 4)
    assert bytes_moved("chain", 2, 4) == on_demand
    assert bytes_moved("double_buffer", 4, 4) < bytes_moved("on_demand", 4, 4)
    # Twin: a rule that copies what is there already moves more, and the report says so.
    assert bytes_moved("slot_local", 5, 4) > bytes_moved("chain", 5, 4)


def overlapping(policy: str, streams: Streams) -> set[tuple[int, int]]:
    """Which copies are under way while which modules run, of seven modules over four slots, in two
    passes."""
    program = lower(policies.named(policy)(Ring(7, 4)), streams)
    boxes = place(program.listing(2), streams).boxes
    copies = [b for b in boxes if isinstance(b.operation, Copy) and b.boundary.half != PRELOAD]
    runs = [box for box in boxes if isinstance(box.operation, Run)]
    return {
        (copy.operation.module, run.operation.module)
        for copy in copies
        for run in runs
        if copy.start < run.end and run.start < copy.end
    }


def test_the_prefetch_is_synchronous() -> None:
    """verl #6317, torchtitan #2749, pytorch #178862, #106030: a setting was dropped, and nothing
    ran ahead. Each module that is refilled comes while another one runs, as the fences allow."""
    found = overlapping("balanced", Streams((COPY,)))
    refilled = {copied for copied, _ in found}
    schedule = policies.balanced(Ring(7, 4))
    assert refilled == {refill.module for after in schedule.after for refill in after}
    assert all(copied != running for copied, running in found)
    assert overlapping("balanced", Streams((COMPUTE,))) == set()


MODES: list[Callable[[], Any]] = [torch.no_grad, torch.inference_mode]


@pytest.mark.parametrize("wrapped", MODES)
@pytest.mark.parametrize("ran", MODES)
def test_tensors_of_inference_mode_have_no_version(
    wrapped: Callable[[], Any], ran: Callable[[], Any]
) -> None:
    """sglang #31263, ComfyUI #15733: "Inference tensors do not track version counter" where one
    mode made the tensors and the other ran. Updates are seen in either mode."""
    model, twin = stack(4), stack(4)
    with wrapped():
        offloaded = runtime.offload(model, slots=2, policy="chain")
    with offloaded:
        for number in range(2):
            for changed in (model, twin):
                with ran():
                    changed.layers[number].up.weight.mul_(-2)
            with ran():
                given, expected = [model(batches(1)[0])], [twin(batches(1)[0])]
            assert same(given, expected)
    assert not any(p.is_inference() for p in model.parameters())
    with torch.inference_mode():
        made = torch.empty(3)
    with pytest.raises(RuntimeError, match="version"):  # twin: what they would be otherwise
        _ = made._version


def test_an_offloaded_model_is_trained() -> None:
    """accelerate #3785: gradients of weights that were gone by the time of the backward. An output
    that requires grad is an error that names the remedy."""
    model = stack(3)
    with runtime.offload(model, slots=1):
        with pytest.raises(OffloadError, match=r"torch\.no_grad\(\)"):
            model(batches(1)[0])
        assert same(outputs(model, batches(2)), outputs(stack(3), batches(2)))


# ---- compiled code, and what belongs to a plan


def test_hooks_are_guards_that_fail_again_and_again() -> None:
    """diffusers #11584, #11605, pytorch #150711: each pass was compiled anew, since hooks and moves
    between devices are guards. After the first pass nothing is."""
    torch._dynamo.reset()
    compiled: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        compiled.append(len(graph.graph.nodes))
        return graph.forward

    model = stack(3)
    with runtime.offload(model, slots=1, policy="chain") as offloaded, torch.no_grad():
        made = torch.compile(model, backend=backend, dynamic=False)
        expected = outputs(stack(3), batches(4))
        found = [made(x) for x in batches(1)]
        after_first = len(compiled)
        found += [made(x) for x in batches(4)[1:]]
        assert same(found, expected)
        assert len(compiled) == after_first > 0
        assert offloaded.report().misses == 0
        made(torch.cat(batches(2)))  # twin: another shape is compiled anew
        assert len(compiled) > after_first
    torch._dynamo.reset()


def digest(policy: str, modules: int, slots: int) -> str:
    return json.loads(verify(policies.named(policy)(Ring(modules, slots))).certificate())["sha256"]


def test_what_was_compiled_for_another_plan_is_used() -> None:
    """vLLM's hash of a configuration: without the offload's settings in it, a stale artefact was
    taken. A certificate's hash is another one exactly if the plan is."""
    plans = [("chain", 5, 2), ("chain", 5, 3), ("chain", 6, 2), ("balanced", 5, 2)]
    hashes = [digest(*plan) for plan in plans]
    assert len({*hashes}) == len(plans)
    assert hashes == [digest(*plan) for plan in plans]
