"""Claim 8: ``balanced`` keeps the distance g* = N // ceil(N / K), and no static slot map a larger.

A distance is the number of steps from one user of a slot to the next, across the end of the pass:
the time that a refill has. Let d be a distance that every slot of some map keeps.

- *spread*: of one slot, c users lie d apart all round the ring, so c * d <= N (an induction over
  the modules: after i of them, from the slot's first user to its last are (c - 1) * d or more);
- *counts*: the counts of all slots add up to N (over the modules: one more module adds one to one
  slot's count; over the slots: that adds one to their sum);
- *at most*: if no slot has more than M users, the sum is at most K * M (over the slots);
- *bound*: with M = N // d, N <= K * M makes d at most g*.

``best_distance`` and the map are executed from their source.
"""

from __future__ import annotations

from typing import Any

from proofs.integers import both, either, implies
from proofs.obligation import Goal, Obligation, System
from proofs.sizes import any_step
from proofs.slotfile import any_ring
from proofs.symbolic import Run


def optimality_claim(system: System) -> list[Obligation]:
    """Claim 8: the lower bound for any map, and that ``balanced`` reaches it."""
    return [
        Obligation(
            "reached",
            "two modules of one slot of balanced are g* steps apart or more, both ways round",
            reached(system),
            {"N": 7, "K": 3, "i": 0, "j": 3},
        ),
        Obligation(
            "start",
            "before the first module, and of no slots, all that is counted below holds",
            start,
            {"d": 2, "M": 1, "slot": 1},
        ),
        Obligation(
            "spread",
            "one more module keeps a slot's c users spread over (c - 1) * d steps or more",
            spread,
            {"d": 3, "i": 3, "first": 0, "last": 0, "c": 1, "here": 1},
        ),
        Obligation(
            "round",
            "at the end of the pass, the distance across it included, c is at most N // d",
            whole_round,
            {"N": 7, "d": 3, "first": 0, "last": 3, "c": 2},
        ),
        Obligation(
            "counts",
            "one more module adds one to the sum of the counts of its slot and those before it",
            counts,
            {"s": 1, "slot": 1, "sum": 3, "c": 1},
        ),
        Obligation(
            "at most",
            "one more slot with at most M users keeps the sum at most M a slot",
            at_most,
            {"s": 1, "M": 3, "sum": 3, "c": 2},
        ),
        Obligation(
            "bound",
            "if no slot has more than N // d users, and N users there are, d is at most g*",
            bound(system),
            {"N": 7, "K": 3, "d": 2},
        ),
    ]


def reached(system: System) -> Any:
    arithmetic = system.arithmetic

    def body(run: Run) -> Goal:
        ring = any_ring(run)
        i, j = any_step(run, ring), run.integer("j")
        run.assume(j > i, j < ring.modules)
        if arithmetic.balanced_slot(i, ring) != arithmetic.balanced_slot(j, ring):
            return True
        best, blocks = arithmetic.best_distance(ring), arithmetic.block_count(ring)
        longer = ring.modules % blocks
        if j >= longer * (best + 1):  # j is in a block of g*: which one, counted from the first
            after = (j - longer * (best + 1)) // best
            product_of_sums(run, best, after, blocks - longer)
            product_of_sums(run, best, blocks - 1, longer + after)
        return both(run, j - i >= best, ring.modules - (j - i) >= best)

    return body


def product_of_sums(run: Run, f: Any, x: Any, y: Any) -> None:
    """The product lemma for two sums: the run gives it the solver for single unknowns alone."""
    for k in (0, 1):
        run.assume(implies(run, both(run, f >= 0, x >= y + k), f * x >= f * y + k * f))


def spread_out(run: Run, i: Any, d: Any, users: Any) -> Any:
    """After i modules: the count of a slot's users, the first and the last, d apart or more."""
    c, first, last = users
    order = both(run, first >= 0, first <= last, last < i, c >= 1, last - first >= c * d - d)
    return either(run, c == 0, order)


def start(run: Run) -> Goal:
    zero, d, most, slot = run.number(0), *(run.integer(name) for name in ("d", "M", "slot"))
    run.assume(d >= 1, most >= 0, slot >= 0)
    nobody = spread_out(run, zero, d, (zero, zero, zero))
    return both(run, nobody, added(run, zero, slot, zero), zero <= zero * most)


def spread(run: Run) -> Goal:
    d, i, c, first, last = (run.integer(name) for name in ("d", "i", "c", "first", "last"))
    run.assume(d >= 1, i >= 0, c >= 0, spread_out(run, i, d, (c, first, last)))
    if run.integer("here") == 0:  # the module runs from another slot
        return both(run, spread_out(run, i + 1, d, (c, first, last)))
    if c == 0:
        return both(run, spread_out(run, i + 1, d, (c + 1, i, i)))
    run.assume(i - last >= d)  # d is a distance that the slot keeps
    return both(run, spread_out(run, i + 1, d, (c + 1, first, i)))


def whole_round(run: Run) -> Goal:
    n, d, c, first, last = (run.integer(name) for name in ("N", "d", "c", "first", "last"))
    run.assume(n >= 1, d >= 1, c >= 0, spread_out(run, n, d, (c, first, last)))
    # From the last user to the first of the next pass; of a single user, N.
    run.assume(implies(run, c >= 1, n - (last - first) >= d))
    return both(run, c * d <= n, c <= n // d)


def added(run: Run, s: Any, slot: Any, more: Any) -> Any:
    """What one more user of ``slot`` adds to the sum of the counts of the slots before s."""
    return either(run, both(run, slot < s, more == 1), both(run, slot >= s, more == 0))


def counts(run: Run) -> Goal:
    s, slot, before, more, c = (run.integer(name) for name in ("s", "slot", "sum", "more", "c"))
    run.assume(s >= 0, slot >= 0, before >= 0, c >= 0, added(run, s, slot, more))
    then = before + more + (c + 1 if slot == s else c)
    return both(run, added(run, s + 1, slot, then - (before + c)))


def at_most(run: Run) -> Goal:
    s, most, before, c = (run.integer(name) for name in ("s", "M", "sum", "c"))
    run.assume(s >= 0, most >= 0, c >= 0, c <= most, before <= s * most)
    return both(run, before + c <= (s + 1) * most)


def bound(system: System) -> Any:
    def body(run: Run) -> Goal:
        ring, d = any_ring(run), run.integer("d")
        n, k = ring.modules, ring.slots
        run.assume(d >= 1, d <= n)
        most = n // d  # since c * d <= N
        run.assume(n <= k * most)
        arithmetic = system.arithmetic
        # Each block has a module in the fullest slot: that many users d apart fit in the ring.
        fits = arithmetic.block_count(ring) * d <= n
        return both(run, fits, d <= arithmetic.best_distance(ring))

    return body
