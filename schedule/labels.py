"""The names under which copies, runs and passes stand in pictures, traces and real profiles.

One function for all of them, so that a span of a real profiler and one of ``show --trace`` that
mean the same are called the same.
"""

from __future__ import annotations

from schedule.operations import Copy, Run

PREFIX = "ringproof"
PASS = f"{PREFIX} pass"


def label(operation: Copy | Run) -> str:
    """A copy's or a run's name."""
    if isinstance(operation, Copy):
        return f"{PREFIX} copy module {operation.module} -> slot {operation.slot}"
    return f"{PREFIX} run module {operation.module}, slot {operation.slot}"
