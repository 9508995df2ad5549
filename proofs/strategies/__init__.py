"""Hypothesis strategies for the tests of whoever moves weights through slots.

    from proofs import strategies

Rings and slot maps; schedules, safe and unsafe, labelled; execution orders; programs, right and
faulty, labelled, and delay patterns for them. Labels are true by construction, or are what the
clocks find. What is drawn shrinks towards few modules, few slots, and the plainest of its kind.
"""

from proofs.needs_hypothesis import HYPOTHESIS
from proofs.strategies.orders import ORDERS, Pass, delays, orders
from proofs.strategies.programs import LabelledProgram, faulty_programs, programs
from proofs.strategies.schedules import (
    KINDS,
    LabelledSchedule,
    safe_schedules,
    schedules,
    unsafe_schedules,
)
from proofs.strategies.sizes import rings, slot_maps

__all__ = [
    "HYPOTHESIS",
    "KINDS",
    "ORDERS",
    "LabelledProgram",
    "LabelledSchedule",
    "Pass",
    "delays",
    "faulty_programs",
    "orders",
    "programs",
    "rings",
    "safe_schedules",
    "schedules",
    "slot_maps",
    "unsafe_schedules",
]
