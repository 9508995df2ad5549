"""What is said about misses: in the log the first one of each module, and once that there are many;
and the error where they are not allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.log import log
from runtime.sizes import misses_in
from schedule.errors import ModuleNotResident
from schedule.ring import EMPTY

PASSES, ONE_IN = 3, 10
"""Many misses: more than one in ten runs, once the runs amount to three passes."""

DO_NOT_WRITE = "weights are written between passes; do so once, before"
LEAVE_OUT = (
    "the modules don't all run in every pass, once and in the order of layers; leave those that "
    "don't out of layers, or keep= them (generate() runs an encoder once, and its decoder in every "
    'pass: layers="decoder.block.*")'
)
"""What to do where most modules missed because their weights were written; and else, where what
was in the slot did not run since, or where a run goes on after another one of the same module."""


class MissLog:
    """The misses of one offload. names: of the modules, in the schedule's order.

    Only a miss comes here, which costs a copy anyway; a hit pays nothing.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._seen: set[int] = set()
        self._first = ""
        self._written = self._logged = 0
        self._warned = False

    def missed(self, module: int, after: int, held: int, runs: int, misses: int) -> None:
        """A module was not resident.

        after:  the module that arrived before it; beyond the last one if none ever did.
        held:   what its slot held: another module; itself, if its weights were written since; or
                EMPTY.
        runs, misses: how many there were, this miss included.
        """
        self._logged += 1
        self._written += held == module
        if module not in self._seen:
            self._seen.add(module)
            how = self._how(module, after, held)
            self._first = self._first or how
            log.debug("miss: %s", how)
        if not self._warned and runs >= PASSES * len(self._names) and misses * ONE_IN > runs:
            self._warned = True
            written = 2 * self._written > self._logged
            log.warning(
                "%s, the first: %s. Each miss waits for a copy: %s",
                misses_in(misses, runs),
                self._first,
                DO_NOT_WRITE if written else LEAVE_OUT,
            )

    def _how(self, module: int, after: int, held: int) -> str:
        first = after >= len(self._names)
        came = "first of all" if first else f"after {self._name(after)}"
        what = "nothing" if held == EMPTY else self._name(held)
        if held == module:
            what = "it as it was before it was written"
        return f"{self._name(module)} came {came}; its slot held {what}"

    def _name(self, module: int) -> str:
        return f"{self._names[module]} (module {module})"


def not_resident(names: Sequence[str], module: int, slot: int, held: int) -> ModuleNotResident:
    """The error for a module that arrived while its slot held another one, or an older version."""
    what = "nothing" if held == EMPTY else f"{names[held]} (module {held})"
    if held == module:
        what = "an older version of its weights"
    return ModuleNotResident(
        f"{names[module]} (module {module}) arrived, but its slot {slot} holds {what}; modules "
        f"must run in the order 0 .. {len(names) - 1}, and weights must not change between passes; "
        f"on_miss='reload' allows both"
    )
