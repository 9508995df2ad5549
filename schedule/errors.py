"""Every error a user can meet: what was wrong, where, and what to do.

Sizes, policies and tables that make no sense are ``ValueError`` subclasses, so that
``except ValueError`` catches all bad input. A schedule that is well formed but unsafe is a
``ScheduleViolation`` and carries its violations, each with its trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schedule.verifier import Violation


class RingError(ValueError):
    """A ring's sizes are not positive integers. Likely cause: sizes read from a config as text."""


class ScheduleError(ValueError):
    """A schedule's tables do not fit its ring: wrong length, or a slot or module outside it."""


class CostsError(ValueError):
    """Costs make no sense, are of another model, or can't be read; or a memory budget is too small
    for them. The message begins with the field."""


class ProgramError(ValueError):
    """A program, or the trace of one, is malformed: an operation that makes no sense where it is,
    an unknown stream or event, a line that can't be read. The message says where."""


class PolicyError(ValueError):
    """A policy can't be found, can't be called, or returned something that is no target."""


class ScheduleViolation(ValueError):
    """The schedule is unsafe.

    ``violations`` holds the first violation of each violated property; each carries the
    trace that leads to it. Likely cause: a refill target computed for another ring.
    what: what is unsafe.     remedy: what to do; both are left out where they are not known.
    """

    def __init__(self, violations: tuple[Violation, ...], what: str = "", remedy: str = "") -> None:
        assert violations, "a ScheduleViolation names at least one violation"
        self.violations = violations
        text = "\n".join(str(violation) for violation in violations)
        super().__init__("".join([what and f"{what}: ", text, remedy and f"; {remedy}"]))


class CertificateError(ValueError):
    """A certificate is not true, or none: the message has the first statement that fails."""


class OffloadError(ValueError):
    """A model can't be offloaded, or can't go on offloaded; the message says what to do. Raised
    while wrapping, it leaves the model unchanged."""


class ModuleNotResident(RuntimeError):
    """With ``on_miss="raise"``: a module arrived and its slot did not hold its weights."""
