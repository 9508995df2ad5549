"""Models of transformers and diffusers, one of each kind: what they give is bit for bit what the
plain ones give, from less memory, with layers found by themselves where that is right; and under
the old rule it is not.
"""

from __future__ import annotations

import dataclasses

import pytest

import runtime
from runtime.unverified import offload_without_proof
from schedule import Ring
from tests.runtime.architectures import (
    ARCHITECTURES,
    built,
    forward,
    fresh,
    generate,
    layers_of,
    make,
    to_offload,
)
from tests.runtime.models import fails, misses, same


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_outputs_are_those_of_the_plain_model(name: str) -> None:
    wanted, text = forward(name, built(name)), generate(name, built(name))
    assert all(tensor.isfinite().all() for tensor in wanted)
    model = fresh(name)
    layers = layers_of(name, model)
    with runtime.offload(model, to_offload(name, model), slots=2) as offloaded:
        assert list(offloaded.selection.modules) == layers
        for number in (1, 2):
            assert same(forward(name, model), wanted)
            report = offloaded.report()
            assert (report.runs, report.misses) == (number * len(layers), 0)
            assert report.copies == number * offloaded.schedule.copies > 0
        assert report.stay == ()
        weights = sum(p.nbytes for layer in layers for p in layer.parameters())
        assert report.bytes_slots < report.bytes_offloaded == weights
        assert report.bytes_rest + report.bytes_slots < report.bytes_whole
        assert same(generate(name, model), text)
    assert same(forward(name, model), wanted)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_under_the_old_rule_they_differ(name: str) -> None:
    """Twin: where it fails, without the guard; with it, the misses are mended."""
    wanted, model = forward(name, built(name)), fresh(name)
    modules = len(ARCHITECTURES[name].blocks)
    slots = next(slots for slots in (2, 3) if fails(Ring(modules, slots)))
    for guard in (False, True):
        with offload_without_proof(
            model,
            to_offload(name, model),
            slots=slots,
            policy="modular",
            output_may_be_wrong=True,
            guard=guard,
        ) as offloaded:
            assert same(forward(name, model), wanted) == guard
            assert (offloaded.report().misses > 0) == guard
    assert same(forward(name, model), wanted)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_tied_layers_are_one_module_that_runs_several_times(groups: int) -> None:
    """ALBERT's groups of layers. A module's slot is refilled after its first run already, so each
    further run of a pass is a miss; unless nothing else needs the slot, and then nothing is saved.
    """
    albert = ARCHITECTURES["ALBERT"]
    sizes = albert.sizes | {"num_hidden_layers": 8, "num_hidden_groups": groups}
    model = make(dataclasses.replace(albert, sizes=sizes))
    wanted = forward("ALBERT", model)
    with runtime.offload(model, slots=1) as offloaded:
        assert offloaded.selection.names == albert.blocks[:groups]
        for _ in range(2):
            assert same(forward("ALBERT", model), wanted)
        report, schedule = offloaded.report(), offloaded.schedule
    order = [group for group in range(groups) for _ in range(8 // groups)]
    assert report.runs == 2 * 8
    assert report.misses == misses(schedule, 2 * order) == (0 if groups == 1 else 2 * (8 - groups))
    assert report.copies == 2 * (0 if groups == 1 else 8 + 8 - groups)
    assert (report.bytes_saved > 0) == (groups > 1)
