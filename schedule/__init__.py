"""Ringproof's schedules: pure data and pure functions, the standard library alone.

    >>> from schedule import Ring, policies, verify
    >>> verify(policies.balanced(Ring(modules=30, slots=4))).schedule.copies
    30

``from_target`` makes a schedule from any function ``(index, slots, modules) -> target | None``.
"""

from schedule import policy as policies
from schedule.errors import (
    CertificateError,
    CostsError,
    ModuleNotResident,
    OffloadError,
    PolicyError,
    RingError,
    ScheduleError,
    ScheduleViolation,
)
from schedule.policy import Policy
from schedule.ring import Ring
from schedule.table import Refill, Schedule
from schedule.verifier import Findings, Verified, check, verify

RINGPROOF = "ringproof"
"""Marks this package as Ringproof's: other packages named ``schedule`` exist."""

__all__ = [
    "CertificateError",
    "CostsError",
    "Findings",
    "ModuleNotResident",
    "OffloadError",
    "Policy",
    "PolicyError",
    "Refill",
    "Ring",
    "RingError",
    "Schedule",
    "ScheduleError",
    "ScheduleViolation",
    "Verified",
    "check",
    "policies",
    "verify",
]
