"""Rings and slot maps, and what the other rooms ask of a caller."""

from __future__ import annotations

from hypothesis import strategies as st

from schedule.policy import NAMED, Policy, modular
from schedule.ring import Ring

Rings = st.SearchStrategy[Ring]


def rings(
    *, min_modules: int = 1, max_modules: int = 24, min_slots: int = 1, max_slots: int = 12
) -> Rings:
    """Rings: N modules and K slots within these bounds, K >= N among them.

    Shrinks towards the fewest modules, then the fewest slots. ValueError for bounds that are not
    integers, less than 1, or the wrong way round.
    """
    modules = between("modules", min_modules, max_modules)
    return st.builds(Ring, modules=modules, slots=between("slots", min_slots, max_slots))


def slot_maps(ring: Ring, passes: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    """Slot maps of a ring: the slot of each step of a period of that many passes, any at all.

    ``schedule.policies.Policy("mine", lambda step, ring: drawn[step])`` makes the policy of one.
    Shrinks towards slot 0 for every step. ValueError for what is no ring, or no pass.
    """
    if not isinstance(ring, Ring):
        raise ValueError(f"slot_maps is given {ring!r}; give it a Ring")
    steps = ring.modules * at_least_one("passes", passes)
    slots = st.lists(st.integers(0, ring.slots - 1), min_size=steps, max_size=steps)
    return slots.map(tuple)


def between(what: str, least: object, most: object) -> st.SearchStrategy[int]:
    """Integers within these bounds."""
    low, high = at_least_one(f"min_{what}", least), at_least_one(f"max_{what}", most)
    if high < low:
        raise ValueError(f"max_{what}={high} is less than min_{what}={low}; nothing is between")
    return st.integers(low, high)


def at_least_one(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} must be an integer, at least 1, got {value!r}")
    return value


def strategy_of_rings(among: object, otherwise: Rings) -> Rings:
    """What a caller gave to draw rings from, or the usual."""
    if among is None:
        return otherwise
    if not isinstance(among, st.SearchStrategy):
        raise ValueError(f"rings are drawn from a strategy, got {among!r}; give rings(...)")
    return among


def safe_policies(ring: Ring) -> list[Policy]:
    """The named policies that apply to the ring, without the one that is wrong."""
    return [one for one in NAMED.values() if one is not modular and one.least_slots <= ring.slots]
