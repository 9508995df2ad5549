"""Faults in what a planner chooses from, and in its search."""

from __future__ import annotations

from proofs.mutation import Mutant

PLANNER_MUTANTS = (
    Mutant(
        "a slot as large as its last module",
        "space",
        "        if size > slots.get(slot, 0):",
        "        if size > 0:",
        12,
        None,
        "N=2, model 3, eager, 11 bytes",
    ),
    Mutant(
        "what is kept beside the slots is free",
        "space",
        "return sum(slots.values()) + sum(sizes) - sum(candidate.moved)",
        "return sum(slots.values())",
        12,
        None,
        "N=2, model 1, eager, 10 bytes",
    ),
    Mutant(
        "what fits exactly has no room",
        "search",
        "if sum(largest.values()) + kept > self.space.memory:",
        "if sum(largest.values()) + kept >= self.space.memory:",
        12,
        None,
        "N=3, model 1, eager, 18 bytes",
    ),
    Mutant(
        "copies count twice",
        "search",
        "return least >= self.time",
        "return 2 * least >= self.time",
        12,
        None,
        "N=3, model 1, eager, 18 bytes",
    ),
    Mutant(
        "refills as slots fall free alone",
        "search",
        "for by_use in (False, True):",
        "for by_use in (False,):",
        12,
        None,
        "N=5, model 1, eager, 7 bytes",
    ),
    Mutant(
        "no slot of its own",
        "search",
        "for slot in range(len(largest) + 1):",
        "for slot in range(max(1, len(largest))):",
        12,
        None,
        "N=3, model 1, eager, 18 bytes",
    ),
    Mutant(
        "one kind of pass for all",
        "space",
        "return sum((weight * time for weight, time in pairs), Fraction(0)) / sum(weights)",
        "return times[0]",
        12,
        None,
        "N=1, model 3, eager, 6 bytes",
    ),
)
