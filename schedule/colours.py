"""A colour for each module, such that neighbours differ for colour-blind people too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from schedule.placed import Content
from schedule.ring import EMPTY

PALETTE = ("#77aadd", "#ee8866", "#bbcc33", "#ffaabb", "#44bb99", "#eedd88", "#99ddff", "#aaaa00")
"""The scheme "light" of Paul Tol's, made for fills under dark text; the blue and the orange first,
which nobody takes for each other. Red is left for what is wrong."""


def colours(modules: int, contents: Iterable[Content]) -> Sequence[str]:
    """By module. A ring with more modules than colours goes round them, over so many that modules
    that follow each other in a slot get different ones as often as possible."""
    followers = [
        (a.module, b.module)
        for a, b in pairwise(contents)
        if a.slot == b.slot and a.module != b.module and EMPTY not in (a.module, b.module)
    ]

    def same(size: int) -> int:
        return sum(a % size == b % size for a, b in followers)

    sizes = range(len(PALETTE), len(PALETTE) // 2, -1)
    size = len(PALETTE) if modules <= len(PALETTE) else min(sizes, key=same)
    return [PALETTE[module % size] for module in range(modules)]
