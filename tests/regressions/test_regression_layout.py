"""Reports of layouts, dtypes and quantised weights (REPORTS 3.8), and of adapters and what is saved
(3.9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import runtime
from runtime.arena import Arena
from runtime.layout import ALIGNMENT
from runtime.unverified import offload_without_proof
from schedule import OffloadError
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    as_bytes,
    assert_same_values,
    batches,
    before_run,
    outputs,
    picture,
    same,
    stack,
)

# ---- layouts


def test_each_quantised_layer_has_a_layout_of_its_own() -> None:
    """vLLM #51710: after quantisation no two layers were alike, and a pool with K buffers of each
    layout was as large as all of the weights. A slot is as large as its largest module."""
    model = Stack([Block(WIDTH * (1 + number)) for number in range(6)]).eval()
    expected = outputs(model, batches(2))
    by_layout: dict[tuple[object, ...], int] = {}
    for layer in model.layers:
        shapes = tuple((p.shape, p.dtype) for p in layer.parameters())
        by_layout[shapes] = sum(p.nbytes for p in layer.parameters())
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        report, largest = offloaded.report(), max(m.size for m in offloaded.arena.layouts)
        assert same(outputs(model, batches(2)), expected)
    assert len(by_layout) == 6
    assert report.bytes_slots <= 2 * largest
    assert largest <= max(by_layout.values()) + 4 * ALIGNMENT
    pool = 2 * sum(by_layout.values())  # K buffers of each layout
    assert pool > report.bytes_offloaded
    assert report.bytes_slots < 0.6 * pool


class Transposed(nn.Module):
    """A weight in eight bits that is a transposed view of what a kernel wants, after one of an odd
    number of bytes."""

    def __init__(self) -> None:
        super().__init__()
        odd, bits = torch.randn(13).to(torch.float8_e4m3fn), torch.randn(6, 16)
        self.odd = nn.Parameter(odd, requires_grad=False)
        self.weight = nn.Parameter(bits.to(torch.float8_e4m3fn).t(), requires_grad=False)
        self.seen: list[tuple[object, ...]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.weight
        self.seen.append((w.stride(), w.data_ptr() % 32, as_bytes(w)))
        return x


def test_transposed_views_in_eight_bits_and_kernels_that_want_32_bytes() -> None:
    """sglang's layerwise offload: tensors packed end to end lost the strides of transposed FP8
    views, and the alignment that their kernels were promised."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Transposed() for _ in range(3)))
    wanted = [((1, 16), 0, as_bytes(layer.weight)) for layer in model]
    with runtime.offload(model, list(model), slots=1) as offloaded:
        outputs(model, batches(2))
        assert offloaded.report().copies > 0
    assert [layer.seen for layer in model] == [[each] * 2 for each in wanted]
    # Twin: packed end to end it begins after 13 bytes, and copied as a plain one it is row by row.
    assert model[0].odd.nbytes % 32 == 13
    assert model[0].weight.clone(memory_format=torch.contiguous_format).stride() == (6, 1)


class Kinds(nn.Module):
    """Parameters of types of which torch.finfo knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.ParameterList(
            nn.Parameter(torch.randint(0, 2, (5,)).to(dtype), requires_grad=False)
            for dtype in (torch.int32, torch.uint8, torch.float8_e5m2, torch.bool)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + sum(p.float().sum() for p in self.kinds)


def test_bits_of_types_that_are_no_floating_point() -> None:
    """vLLM #40432, #36269: sizes came from torch.finfo, which raises TypeError for the integers of
    GPTQ, AWQ and bitsandbytes."""
    torch.manual_seed(0)
    model = Stack([Kinds() for _ in range(3)])
    expected = outputs(model, batches(2))
    with pytest.raises(TypeError):
        torch.finfo(model.layers[0].kinds[0].dtype)
    with runtime.offload(model, slots=1) as offloaded:
        assert same(outputs(model, batches(2)), expected)
        assert offloaded.report().bytes_offloaded == 3 * 5 * (4 + 1 + 1 + 1)


def deletes(model: Stack) -> None:
    del model.layers[1].up.bias
    model.layers[1].up.bias = None


def replaces(model: Stack) -> None:
    up = model.layers[1].up
    up.weight = nn.Parameter(up.weight.detach().half().float())


@pytest.mark.parametrize("change", [deletes, replaces])
def test_processing_after_loading_changes_parameters(
    change: Callable[[Stack], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM #37176: a scale was deleted after the wrap, AttributeError; #32991: weights that were
    replaced there stayed on the device. Here it is an error by name, and refresh() adopts it."""
    model = stack(3)
    with runtime.offload(model, slots=1) as offloaded:
        before = offloaded.report().bytes_offloaded
        change(model)
        with pytest.raises(OffloadError, match=r"layers\.1\.up\.\w+ was (deleted|replaced)"):
            outputs(model, batches(1))
        offloaded.refresh()
        gone = 4 * WIDTH if change is deletes else 0
        assert offloaded.report().bytes_offloaded == before - gone
        given = outputs(model, batches(2))
    assert same(given, outputs(model, batches(2)))
    if change is replaces:  # twin: nobody looks, and the old weights are bound
        model = stack(3)
        monkeypatch.setattr(Arena, "change", lambda *_: None)
        with runtime.offload(model, slots=1):
            replaces(model)
            assert not same(outputs(model, batches(2)), given)


# ---- saved, updated, put to sleep


def test_a_state_dict_of_what_the_slots_hold() -> None:
    """accelerate #2156, #3253, #4261, transformers #39280, #34890: tensors on meta were saved, or
    all of it was held twice. Between any two modules it is the model's, over the same memory."""
    model, states = stack(4), []
    before = picture(model).values
    for layer in model.layers:
        before_run(layer, lambda: states.append(model.state_dict()))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        outputs(model, batches(2))
        assert len(states) == 8
        for state in states:
            assert_same_values(state, before)
            assert all(state[n].data_ptr() == p.data_ptr() for n, p in model.named_parameters())
        # Twin: the slots hold another module's.
        weights = offloaded.arena.sets[2, 0]
        (up,) = [place.device for place in weights.places if place.path == "up.weight"]
        assert not torch.equal(up, model.layers[2].up.weight)


def test_a_merge_reads_placeholders() -> None:
    """sglang #16737: an adapter was merged into what stood in for the weights. Here the weight is
    the master: what is added there is what the next pass computes with, whatever is resident."""
    model, twin = stack(4), stack(4)
    with runtime.offload(model, slots=2, policy="chain"):
        outputs(model, batches(1))
        plain = outputs(twin, batches(1))
        for changed in (model, twin):
            with torch.no_grad():
                for layer in changed.layers:
                    layer.up.weight += torch.outer(torch.ones(WIDTH), torch.arange(WIDTH) / 9)
        assert same(outputs(model, batches(1)), outputs(twin, batches(1)))
        assert not same(outputs(twin, batches(1)), plain)


@pytest.mark.parametrize("slots", [1, 3])
def test_what_wakes_is_not_what_went_to_sleep(slots: int) -> None:
    """miles #835, #1958, vLLM #29341: other weights were restored than had been offloaded. After
    each close every tensor is the one that it was, with its values, over memory of its own."""
    model = stack(5, uneven=True)
    before, expected = picture(model), outputs(model, batches(2))
    for _ in range(2):
        with runtime.offload(model, slots=slots, policy="chain") as offloaded:
            outputs(model, batches(1))
            for slot in offloaded.arena.slots:
                slot.fill_(0xFF)
            masters = {n: p.data_ptr() for n, p in model.layers.named_parameters()}
        now = picture(model)
        assert now.parameters.keys() == before.parameters.keys()
        assert all(now.parameters[n] is p for n, p in before.parameters.items())
        assert_same_values(now.values, before.values)
        assert all(masters[n] != p.data_ptr() for n, p in model.layers.named_parameters())
        assert same(outputs(model, batches(2)), expected)
    model.layers[3].up.weight.data.zero_()  # twin: one of them alone would show
    assert not same(outputs(model, batches(2)), expected)


class Recording(Block):
    """Notes where its weight lies in each run."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.at.append(self.up.weight.data_ptr())
        return super().forward(x)


@pytest.mark.parametrize("assign", [False, True])
def test_a_replay_after_an_update_would_use_the_old_addresses(assign: bool) -> None:
    """vllm-project/vime #157: graphs were not captured again after an update of the weights. An
    offloaded module's run sees the same addresses before and after, assigned weights included."""
    model = Stack([Recording() for _ in range(3)]).eval()
    other = Stack([Recording() for _ in range(3)]).eval().state_dict()
    with runtime.offload(model, slots=1, policy="chain"):
        outputs(model, batches(2))
        model.load_state_dict(other, assign=assign)
        outputs(model, batches(2))
    addresses = {address for layer in model.layers for address in layer.at}
    assert len(addresses) == 1  # all of them over the one slot
    outputs(model, batches(1))
    model.load_state_dict({n: t.clone() for n, t in other.items()}, assign=True)
    outputs(model, batches(1))
    assert all(layer.at[-1] != layer.at[-2] for layer in model.layers)  # twin: not offloaded


def test_the_old_rule_saves_right_and_computes_wrong() -> None:
    """Twin of all the above: that states are right says nothing about outputs."""
    model = stack(3)
    before, expected = picture(model).values, outputs(model, batches(2))
    with offload_without_proof(model, slots=2, policy="modular", output_may_be_wrong=True):
        assert not same(outputs(model, batches(2)), expected)
        assert_same_values(model.state_dict(), before)
