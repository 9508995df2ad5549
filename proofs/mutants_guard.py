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
        also=(
            (7, "arrives, copies on the compute stream"),
            (7, "resumes, copies on the compute stream"),
        ),
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
        "what is resident resumes without a wait",
        "guard",
        "return (RESUME,) if resident else (RELOAD, RESUME)",
        "return () if resident else (RELOAD, RESUME)",
        7,
        "resumes, one copy stream",
        "refilled 0, resumes 0",
    ),
    Mutant(
        "what lost its slot resumes",
        "guard",
        "return (RESUME,) if resident else (RELOAD, RESUME)",
        "return (RESUME,)",
        7,
        "resumes",
        "resumes 0",
    ),
)
