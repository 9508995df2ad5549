"""A search by enumeration, in parts: what it looked at, and the first that it found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Search:
    """looked_at: how many schedules or programs; so that one cut short unseen is no pass.
    found: the first counterexample, in words, or None.   raised: by the code under proof, which
    is shown to be neither right nor wrong then; empty if nothing was."""

    looked_at: int
    found: str | None = None
    raised: str = ""


def first(parts: Iterable[Search]) -> Search:
    """The parts as one search, up to the first that found something or was cut short."""
    looked_at = 0
    for part in parts:
        looked_at += part.looked_at
        if part.found or part.raised:
            return Search(looked_at, part.found, part.raised)
    return Search(looked_at)
