"""How tensors are packed into slabs, and how copies are cut into pieces."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.host import PAGE, pieces
from runtime.layout import Segment
from runtime.packing import Slab, affordable, pack

sizes_ = st.lists(
    st.one_of(
        st.sampled_from([0, 256, 3 << 20, 4 << 20, 7 << 24]),
        st.integers(0, 1 << 24).map(lambda n: n // 256 * 256),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(sizes_)
def test_every_tensor_is_whole_in_one_slab(sizes: list[int]) -> None:
    slabs = pack(sizes)
    placed = sorted(piece for slab in slabs for piece in slab.pieces)
    assert placed == [index for index, size in enumerate(sizes) if size]
    for slab in slabs:
        assert slab.size & (slab.size - 1) == 0
        assert slab.used == sum(sizes[piece] for piece in slab.pieces) <= slab.size


@settings(max_examples=60, deadline=None)
@given(sizes_, st.integers(0, 4).map(PAGE.__mul__), st.integers(0, 1 << 30), st.integers(1, 4))
def test_what_is_locked_is_within_the_bound(
    sizes: list[int], pages: int, limit: int, gaps: int
) -> None:
    slabs, weights = pack(sizes), [size // gaps for size in sizes]
    chosen = affordable(slabs, weights, pages, limit)
    locked = sum(slabs[index].size for index in chosen)
    inside = sum(weights[piece] for index in chosen for piece in slabs[index].pieces)
    assert locked <= limit
    assert locked * 20 <= inside * 21 + pages * 20


@pytest.mark.parametrize(
    ("sizes", "slabs"),
    [
        ([4096] * 3, [(4096, 1)] * 3),
        ([3 << 20] * 28, [(64 << 20, 21), (16 << 20, 5), *[(4 << 20, 1)] * 2]),  # 88 MiB for 84
        ([(1 << 20) - 256, 512], [(1 << 20, 1), (512, 1)]),
        ([(3 << 20) - 512, 512, 1 << 20], [(4 << 20, 3)]),
        ([], []),
        ([0, 0], []),
    ],
)
def test_the_smallest_slab_that_is_filled_well(
    sizes: list[int], slabs: list[tuple[int, int]]
) -> None:
    assert [(slab.size, len(slab.pieces)) for slab in pack(sizes)] == slabs


def test_large_models_are_locked_whole() -> None:
    """Layers as they are: Llama 3 8B and Qwen3 0.6B, in bfloat16."""
    llama = [4096 * n * 2 for n in (4096, 1024, 1024, 4096, 14336, 14336, 14336, 1, 1)] * 32
    qwen = [1024 * n * 2 for n in (2048, 1024, 1024, 2048, 3072, 3072, 3072, 1, 1)] * 28
    for sizes in (llama, qwen):
        slabs = pack(sizes)
        assert len(affordable(slabs, sizes, 0, 1 << 50)) == len(slabs)
        assert sum(slab.size for slab in slabs) <= 1.05 * sum(sizes)
        assert max(slab.size for slab in slabs) <= 3 * sum(sizes[:9])  # three modules


def test_the_slabs_filled_best_are_locked_first() -> None:
    slabs = [Slab(16, 9, (0,)), Slab(16, 16, (1,)), Slab(32, 31, (2,))]
    assert affordable(slabs, [9, 16, 31], 0, 1000) == {1, 2}
    assert affordable(slabs, [9, 16, 31], 0, 47) == {1}
    assert affordable(slabs, [9, 16, 31], 7, 1000) == {0, 1, 2}


# ---- pieces


def test_a_refill_of_more_than_two_chunks_is_cut() -> None:
    memory, slot = torch.arange(10, dtype=torch.uint8), torch.zeros(10, dtype=torch.uint8)
    block = (Segment(0, memory[:3]), Segment(3, memory[3:]))
    for chunk, lengths in {None: [3, 7], 5: [3, 7], 4: [3, 4, 3], 2: [2, 1, 2, 2, 2, 1]}.items():
        found = tuple(pieces(block, slot.zero_(), chunk))
        assert [source.numel() for _, source in found] == lengths
        for target, source in found:
            target.copy_(source)
        assert torch.equal(slot, memory)
    assert not tuple(pieces((Segment(0, memory[:0]),), slot, None))
