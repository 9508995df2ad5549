"""The guard: what the host issues when a module arrives, whatever ran before it.

A schedule brings each module in time if the modules run in its order. They may not: one is
skipped, repeated or interrupted, or its weights have changed. So the host looks at what it last
copied into the slot, and loads what is missing before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule.program import BACK, RELOAD
from schedule.ring import EMPTY
from schedule.table import RUN


@dataclass(frozen=True, slots=True)
class Copied:
    """What was last copied into a slot: a module, or EMPTY, and the version of its weights."""

    module: int = EMPTY
    version: int = -1


def is_resident(last: Copied, module: int, version: int) -> bool:
    """Whether the slot holds the module's weights as they are now."""
    return last.module == module and last.version == version


def arrives(resident: bool) -> tuple[str, ...]:
    """The halves of the module's step that are issued when it begins, in order."""
    return (RUN,) if resident else (RELOAD, RUN)


def goes_on(resident: bool) -> tuple[str, ...]:
    """The same where another module ran inside its run, which now goes on to read the slot. It
    waits in any case: what it finds there may have been brought back meanwhile, and be under way.
    """
    return (BACK,) if resident else (RELOAD, BACK)
