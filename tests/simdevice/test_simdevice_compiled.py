"""Compiled models on the device, while the host runs ahead: as they are by default, and whole with
``static=True``. Inductor does not know the device: its graphs are executed operator by operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd

import runtime
from runtime.device import AcceleratorStreams, Action
from runtime.unverified import offload_without_proof
from schedule.operations import Record, Wait
from tests.runtime.inductor import in_place
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.offloads import Case


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


whole = aot_autograd(fw_compiler=in_place, keep_inference_input_mutations=True)


def static(*given: Any, **options: Any) -> runtime.Offloaded:
    return runtime.offload(*given, static=True, **options)


class Compiled(Case):
    """A case whose model is compiled."""

    def __init__(self, *name: Any, backend: Any, fullgraph: bool, **options: Any) -> None:
        self._compile = {"backend": backend, "fullgraph": fullgraph}
        super().__init__(*name, **options)

    def outputs(self) -> list[torch.Tensor]:
        if not isinstance(self.model, torch._dynamo.OptimizedModule):
            self.compiled = torch.compile(self.model, **self._compile)
        return self._round(self.compiled, self.inputs)


DEFAULT = {"backend": "aot_eager", "fullgraph": False}
STATIC = {"backend": whole, "fullgraph": True, "offload": static}
KINDS = ("in order", "skipped", "repeated", "backwards")
CASES = [(DEFAULT, kind) for kind in (*KINDS, "updated")] + [(STATIC, kind) for kind in KINDS]
"""Of static ones nobody updates parameters between passes: they are the slots'."""

RINGS = [("chain", 3, 2), ("double_buffer", 5, 3), ("restart", 4, 2), ("single_buffer", 3, 1)]


@pytest.mark.parametrize(
    ("mode", "kind"), CASES, ids=[f"{'static' if m is STATIC else 'default'}-{k}" for m, k in CASES]
)
def test_every_seed_is_right(sim: SimDevice, mode: dict[str, Any], kind: str) -> None:
    for number, ring in enumerate(RINGS):
        torch._dynamo.reset()
        case = Compiled(*ring, kind, **mode)
        with case.offloaded as offloaded:
            copies = offloaded.report().copies
            for seed, adversary in enumerate(ADVERSARIES):
                assert case.right(sim, 10 * number + seed, adversary), (ring, seed, adversary)
            report = offloaded.report()
            assert report.copies > copies
            if kind == "in order":
                assert report.misses == 0
                assert report.runs == case.passes * ring[1] * (1 + len(ADVERSARIES))
            elif kind in ("skipped", "backwards"):
                assert report.misses > 0


def old_rule(*given: Any, **options: Any) -> runtime.Offloaded:
    return offload_without_proof(*given, static=True, output_may_be_wrong=True, **options)


def test_with_the_old_rule_a_whole_graph_is_wrong(sim: SimDevice) -> None:
    """Twin."""
    case = Compiled("modular", 3, 2, **{**STATIC, "offload": old_rule})
    with case.offloaded:
        assert not case.right(sim, 1, ADVERSARIES[0])


@pytest.mark.parametrize("mode", [DEFAULT, STATIC], ids=["default", "static"])
def test_without_waits_it_is_wrong_under_some_seed(sim: SimDevice, mode: dict[str, Any]) -> None:
    """Twin: the operators issue the program's fences, which are needed."""

    def fence(streams: AcceleratorStreams, operation: Record | Wait) -> Action:
        if isinstance(operation, Wait):
            return lambda: None
        return whole_fence(streams, operation)

    whole_fence = AcceleratorStreams.fence
    with patch.object(AcceleratorStreams, "fence", fence):
        case = Compiled("chain", 3, 2, **mode)
        with case.offloaded:
            found = [case.right(sim, seed, one) for seed, one in enumerate(ADVERSARIES)]
    assert not all(found)
