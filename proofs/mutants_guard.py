"""Faults of the guard: what it takes for resident, and what it lets the host issue then."""

from __future__ import annotations

from proofs.mutation import Mutant

GUARD_MUTANTS = (
    Mutant(
        "an older version is resident",
        "guard",
        "return last.module == module and last.version == version",
        "return last.module == module",
        7,
        "resident",
        "refilled 0, written 0, arrives 0",
    ),
    Mutant(
        "a miss is not reloaded",
        "guard",
        "return (RUN,) if resident else (RELOAD, RUN)",
        "return (RUN,)",
        7,
        "arrives",
        "arrives 0",
    ),
    Mutant(
        "reloaded too late",
        "guard",
        "return (RUN,) if resident else (RELOAD, RUN)",
        "return (RUN,) if resident else (RUN, RELOAD)",
        7,
        "arrives, one copy stream",
        "arrives 0",
    ),
    Mutant(
        "what is resident goes on without a wait",
        "guard",
        "return (BACK,) if resident else (RELOAD, BACK)",
        "return () if resident else (RELOAD, BACK)",
        7,
        "goes on, one copy stream",
        "refilled 0, goes on 0",
    ),
    Mutant(
        "what lost its slot goes on",
        "guard",
        "return (BACK,) if resident else (RELOAD, BACK)",
        "return (BACK,)",
        7,
        "goes on",
        "goes on 0",
    ),
)
