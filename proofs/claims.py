"""The claims, in the order of ARCHITECTURE.md, each with its obligations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proofs import engines
from proofs.agreement import BOUND, disagreement
from proofs.cases import EVERY_RUN
from proofs.engines import Explorer
from proofs.guarding import guard_claim
from proofs.obligation import Obligation, System
from proofs.optimality import optimality_claim
from proofs.ordering import ordering_claim
from proofs.planning import BOUND as MODULES
from proofs.planning import PARTS, planning
from proofs.refills import own_pass_obligation, refill_obligations, rotation
from proofs.report import Verdict
from proofs.rules import equivalence_claim, failure_claim
from proofs.search import Search
from proofs.sizes import (
    FIVE_TWO,
    closure,
    every_step,
    in_range,
    policy_obligations,
    preload,
    restored,
    scan,
    step,
)
from proofs.theorems import machine_claim, soundness_claim

EXPECTED = (9, 7, 17, 7, 2, 41, 6, 13, 7, 0, 0, 0, 0)
EXPECTED_CLAIMS, EXPECTED_OBLIGATIONS = len(EXPECTED), sum(EXPECTED)
"""By claim, its obligations. A run with fewer is not a pass: something was dropped unseen."""

SEARCHED = {9: 3_255, 10: 1_416, 11: 8_397, 12: 374}
"""By claim to a bound, how many programs or schedules are looked at: one cut short is no pass."""

FAULTS, SMALL = EVERY_RUN.faults, EVERY_RUN.small
SOLVER = EVERY_RUN.solver

FIRST = {"N": 5, "K": 2, "s": 1}


@dataclass(frozen=True, slots=True)
class Claim:
    """number, title, statement: for people.   bound: for which sizes it is shown.
    obligations: decided by Z3, all of them for the claim to be proved.
    search: for a claim to a bound, instead: by enumeration, of rings of so many modules.
    largest: how many those may be.   looks_at: at what, for people.
    found: the verdict if there is a counterexample."""

    number: int
    title: str
    statement: str
    bound: str
    obligations: tuple[Obligation, ...] = ()
    search: Callable[[int, Explorer], Search] | None = None
    largest: int = 0
    looks_at: str = ""
    found: Verdict = Verdict.VIOLATED


ALL = "all N and K"


def claims(system: System) -> tuple[Claim, ...]:
    """Every claim about this code."""
    return (
        Claim(
            0,
            "machine",
            "the state machine allows exactly what ownership, identity, RAW, WAR and WAW allow",
            "every state and event",
            tuple(machine_claim(system)),
        ),
        Claim(
            1,
            "soundness",
            "ownership and progress imply identity for ever: any slot map, any refills",
            ALL,
            tuple(soundness_claim(system)),
        ),
        Claim(
            2,
            "policies",
            "derived refills are owned and in time for any slot map, any period and any order of "
            "modules; so are those of slot_local, restart, one_ahead and on_demand; every named "
            "slot map stays within the slots",
            ALL,
            tuple(_policy_claim(system)),
        ),
        Claim(
            3,
            "modular",
            "the old rule is violated exactly for 1 < K < N with N % K != 0, in the first pass: "
            "module 0 replaces module N - N % K, which then reads it",
            ALL,
            tuple(failure_claim(system)),
        ),
        Claim(
            4,
            "equivalence",
            "slot_local is i + K, else i % K, for K < N; chain is slot_local without refills of "
            "a module that is there",
            ALL,
            tuple(equivalence_claim(system)),
        ),
        Claim(
            5,
            "ordering",
            "the fences of the lowering order all conflicting accesses for every timing: any "
            "refills, runs and writes of what a slot holds, in any order, on one copy stream, "
            "several, or the compute stream",
            ALL,
            tuple(ordering_claim(system)),
        ),
        Claim(
            6,
            "closure",
            "what a period takes for granted is there at its start and again at its end, for every "
            "named policy; restart, one_ahead and on_demand take nothing for granted",
            ALL,
            tuple(_closure_claim(system)),
        ),
        Claim(
            7,
            "guard",
            "whatever the slots hold, copies under way included, the next run finds its own "
            "weights as they are now, ordered for every timing: modules may be skipped, repeated, "
            "reversed, cut short, or run inside one another",
            ALL,
            tuple(guard_claim(system)),
        ),
        Claim(
            8,
            "optimality",
            "g* = N // ceil(N / K) is the largest distance a static map can keep; balanced does",
            ALL,
            tuple(optimality_claim(system)),
        ),
        Claim(
            9,
            "together",
            "no interleaving of a safe schedule's program shows a hazard, a loose copy or another "
            "module's weights: eager, captured whole or in pieces, with modules skipped, with a "
            "block written; and the runtime is given the operations that were looked at",
            f"{EVERY_RUN}), preload and two periods",
            search=lambda modules, explorer: engines.together(system, modules, explorer),
            largest=EVERY_RUN.rings,
            looks_at="programs",
        ),
        Claim(
            10,
            "agreement",
            "the tables that the policies make: local check, machine and definitions agree, "
            "verdicts as claimed",
            f"all rings to {BOUND}x{BOUND}",
            search=lambda modules, _: disagreement(system, modules),
            largest=BOUND,
            looks_at="schedules",
        ),
        Claim(
            11,
            "engines",
            "clocks, interleavings and a solver over real times find the same faults in the same "
            "programs, right ones and faulty ones (searches that meet their bound are compared as "
            "far as they went)",
            f"{EVERY_RUN}; faulty programs to {FAULTS}x{FAULTS}, on two copy streams to "
            f"{SMALL}x{SMALL}; the solver to {SOLVER}x{SOLVER})",
            search=lambda modules, explorer: engines.disagreement(system, modules, explorer),
            largest=EVERY_RUN.rings,
            looks_at="programs",
            found=Verdict.DISAGREE,
        ),
        Claim(
            12,
            "planner",
            "no static slot map, with any parts kept, is better at the same memory than what is "
            "planned, eager or captured; the plan has room, takes what it says, is verified, its "
            "program ordered, and its certificate believed",
            f"models of up to {MODULES} modules, of up to {PARTS} cut into parts",
            search=lambda modules, _: planning(system, modules),
            largest=MODULES,
            looks_at="plans",
        ),
    )


def _policy_claim(system: System) -> list[Obligation]:
    policy, arithmetic = system.policy, system.arithmetic
    maps = {p.name: p for p in policy.NAMED.values() if p.slot_of is not arithmetic.cyclic_slot}
    maps["cyclic"] = policy.modular
    rotating = policy.rotating.slot_of
    return [
        *(
            Obligation(
                f"{name}: slots",
                "every step's slot is one of the ring's",
                in_range(p.slot_of, p.least_slots),
                FIVE_TWO,
            )
            for name, p in maps.items()
        ),
        Obligation(
            "rotating: slots",
            "every step's slot is one of the ring's, in every pass",
            in_range(rotating, 1, every_step),
            FIVE_TWO,
        ),
        Obligation(
            "scan",
            "one step of the backward scan finds next users, for any slot map",
            scan(system),
            FIVE_TWO,
        ),
        Obligation(
            "preload",
            "the preload of a slot's first user makes the slot ready, for any slot map",
            preload(system),
            FIRST,
        ),
        Obligation(
            "derived: step",
            "a step with its derived refill keeps every slot ready, for any slot map and period",
            step(system, None, None),
            FIVE_TWO,
        ),
        *policy_obligations(system, "slot_local", arithmetic.slot_local_target),
        *(one for p in _with_refills(system) for one in refill_obligations(system, p)),
    ]


def _with_refills(system: System) -> list[Any]:
    """The named policies that give a rule for refills."""
    return [p for p in system.policy.NAMED.values() if p.refill is not None]


def _closure_claim(system: System) -> list[Obligation]:
    return [
        Obligation(
            "next pass",
            "the next user at a period's end is the first of the next, for any slot map: all "
            "slots that are ready at the end are so at the start",
            closure(),
            FIRST,
        ),
        Obligation(
            "modular",
            "modular's last refill of each slot is the slot's first user, K < N",
            restored(system),
            {"N": 5, "K": 3, "s": 0, "j": 3},
        ),
        Obligation(
            "rotating",
            "N * K/g steps are a multiple of K, and K steps on the slot is the same: so the next "
            "period goes on with slot = step % K",
            rotation(system),
            {"N": 5, "K": 2, "i": 1},
        ),
        *map(own_pass_obligation, _with_refills(system)),
    ]
