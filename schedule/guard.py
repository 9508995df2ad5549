"""The guard: what the host issues when a module arrives, whatever ran before it.

A schedule brings each module in time if the modules run in its order. They may not: one is
skipped, repeated or interrupted, or its weights have changed. So the host looks at what it last
copied into the slot, and loads what is missing before it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schedule.program import RELOAD, RESUME
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


def resumes(resident: bool) -> tuple[str, ...]:
    """The same where another module ran inside its run, which now resumes and reads the slot. It
    waits in any case: what it finds there may have been brought back meanwhile, and be under way.
    """
    return (RESUME,) if resident else (RELOAD, RESUME)


def missing(
    needs: Mapping[int, int], last: Sequence[Copied], version: Callable[[int], int]
) -> list[int]:
    """The modules to reload before a graph is replayed, in which no host looks.

    needs: by slot, the module that its runs find there.     version: of a module's weights, now.
    """
    return [
        module
        for slot, module in needs.items()
        if not is_resident(last[slot], module, version(module))
    ]


def innermost(runs: Sequence[tuple[int, int]]) -> list[int]:
    """Which runs resume when what ran inside them has ended, the innermost first, by position.

    runs: the module and slot of each, the outermost first. Of several runs of one module, or from
    one slot, the innermost resumes; until it has ended the slot is not the others'.
    """
    found: list[int] = []
    modules, slots = set(), set()
    for at in range(len(runs) - 1, -1, -1):
        module, slot = runs[at]
        if module not in modules and slot not in slots:
            modules.add(module)
            slots.add(slot)
            found.append(at)
    return found
