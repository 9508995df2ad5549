"""Faults put into the code under proof by hand. Each must be refuted by the claim it names.

``smallest`` pins the smallest counterexample: for a policy the first ring, by N, then K, at which
the finished tables go wrong; for the machine the shortest sequence of events on which it and the
true one differ; for the local check the smallest table; for the guard the shortest sequence of
what happens to one slot; for the planner the first model and memory; for a lemma, which runs none
of that code, the smallest integers.
"""

from __future__ import annotations

from proofs.mutants_guard import GUARD_MUTANTS
from proofs.mutants_lemma import LEMMA_MUTANTS
from proofs.mutants_machine import MACHINE_MUTANTS
from proofs.mutants_order import ORDER_MUTANTS
from proofs.mutants_planner import PLANNER_MUTANTS
from proofs.mutants_policy import POLICY_MUTANTS
from proofs.mutants_program import PROGRAM_MUTANTS
from proofs.mutants_refills import REFILL_MUTANTS

MUTANTS = (
    *MACHINE_MUTANTS,
    *POLICY_MUTANTS,
    *REFILL_MUTANTS,
    *PROGRAM_MUTANTS,
    *ORDER_MUTANTS,
    *GUARD_MUTANTS,
    *PLANNER_MUTANTS,
    *LEMMA_MUTANTS,
)
