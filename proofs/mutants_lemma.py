"""Faults of the lemmas that run nothing of ``schedule``: of the text of the proofs themselves.

Without them nothing would show that such a lemma can fail. ``smallest`` pins the smallest integers
for which it does.
"""

from __future__ import annotations

from proofs.mutation import Mutant

LEMMA_MUTANTS = (
    Mutant(
        "a product of one more",
        "proofs.theorems",
        "f * x >= f * y + k * f)",
        "f * x >= f * y + k * f + 1)",
        1,
        "product lemma",
        "f=0, k=0, x=0, y=0",
    ),
    Mutant(
        "the next period begins a step early",
        "proofs.sizes",
        "[run.number(0), ring.modules], [])",
        "[run.number(0), ring.modules - 1], [])",
        6,
        "next pass",
        "N=2, K=1, s=0",
    ),
    Mutant(
        "a slot without users has one",
        "proofs.optimality",
        "return either(run, c == 0, order)",
        "return either(run, c == 1, order)",
        8,
        "start",
        "d=1, M=0, slot=0",
    ),
    Mutant(
        "users one step closer",
        "proofs.optimality",
        "run.assume(i - last >= d)",
        "run.assume(i - last >= d - 1)",
        8,
        "spread",
        "d=2, i=1, first=0, last=0, c=1, here=1",
    ),
    Mutant(
        "one step closer across the end",
        "proofs.optimality",
        "n - (last - first) >= d)",
        "n - (last - first) >= d - 1)",
        8,
        "round",
        "N=1, d=2, first=0, last=0, c=1",
    ),
    Mutant(
        "a module that counts twice",
        "proofs.optimality",
        "c + 1 if slot == s",
        "c + 2 if slot == s",
        8,
        "counts",
        "s=0, slot=0, sum=0, c=0",
    ),
    Mutant(
        "one user more than most",
        "proofs.optimality",
        "c <= most, before",
        "c <= most + 1, before",
        8,
        "at most",
        "s=0, M=0, sum=0, c=1",
    ),
)
