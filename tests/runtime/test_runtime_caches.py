"""generate() with a cache of each kind: the rest of the model, the cache with it, is where the
layers run. Where that is another device than the CPU: tests/simdevice/test_simdevice_placement.py.
"""

from __future__ import annotations

import copy

import pytest
import torch

import runtime
from runtime.unverified import offload_without_proof
from tests.runtime.caches import CACHES, LAYERS, TOKENS, ask, built, same_answer, tensors

pytestmark = pytest.mark.usefixtures("sanitized")


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", LAYERS)
def test_generate_is_right_with_a_cache_of_each_kind(kind: str, cache: str) -> None:
    pytest.importorskip("transformers")
    wanted, model = ask(built(kind), cache), copy.deepcopy(built(kind))
    with runtime.offload(model, LAYERS[kind], slots=2) as offloaded:
        answer = ask(model, cache)
        assert same_answer(answer, wanted)
        report = offloaded.report()
        assert (report.passes, report.misses) == (TOKENS, 0)
        assert report.copies == TOKENS * offloaded.schedule.copies > 0
        both = list(zip(tensors(answer), tensors(wanted), strict=True))
        assert len(both) >= 6
        assert all(torch.equal(one, other) for one, other in both)
    with offload_without_proof(
        model, LAYERS[kind], slots=2, policy="modular", output_may_be_wrong=True
    ):
        assert not same_answer(ask(model, cache), wanted)
