"""Change the source of the code under proof, and find where the change shows first.

A mutant is a change of source text, so that it is the real code with one fault, and not a second
copy of it.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from types import ModuleType
from typing import Any
from unittest.mock import patch

from proofs import engines
from proofs.agreement import BOUND, disagreement
from proofs.cases import EVERY_RUN, cases, rings
from proofs.claims import Claim, claims
from proofs.guarding import wrong_order
from proofs.obligation import System
from proofs.planning import BOUND as MODULES
from proofs.planning import planning
from proofs.search import first
from schedule.ring import EMPTY, Ring
from schedule.table import Schedule

MADE_OF = {
    "arithmetic": ("policy",),
    "program": ("graphs",),
    "space": ("seeds", "search", "plan"),
    "search": ("plan",),
}
"""What imports functions of what, in that order: policies are made of the arithmetic."""


class StaleMutant(Exception):
    """A mutant's text is not in the source, or not once: the code changed, the mutant must too."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """name: the fault.   module: which module of the System is changed.
    before, after: the text replaced.   claim, obligation: what must refute it.
    smallest: the pinned counterexample.
    also: other obligations, by claim, that must not be proved of it, since no other mutant shows
    that they can fail."""

    name: str
    module: str
    before: str
    after: str
    claim: int
    obligation: str | None
    smallest: str
    also: tuple[tuple[int, str], ...] = ()


def apply(mutant: Mutant, system: System) -> System:
    """The system with the fault in it. StaleMutant if the text is not there exactly once."""
    source = _replaced(mutant, getattr(system, mutant.module))
    return changed(system, mutant.module, source, mutant.name)


def of_lemma(mutant: Mutant) -> bool:
    """Whether the fault is in the proofs' own text, and not in the code under proof."""
    return mutant.module.startswith("proofs.")


def faulty_claims(mutant: Mutant, system: System) -> tuple[Claim, ...]:
    """The claims, with the fault in the code that they are about or in a lemma."""
    if not of_lemma(mutant):
        return claims(apply(mutant, system))
    original = import_module(mutant.module)
    lemmas = _executed(original, _replaced(mutant, original), mutant.name)
    # The claims are made of the lemmas: they are made again, of the changed ones.
    with patch.dict(sys.modules, {original.__name__: lemmas}):
        made = import_module("proofs.claims")
        again = _executed(made, inspect.getsource(made), mutant.name)
    found: tuple[Claim, ...] = again.claims(system)
    return found


def _replaced(mutant: Mutant, original: ModuleType) -> str:
    source = inspect.getsource(original)
    if source.count(mutant.before) != 1:
        raise StaleMutant(f"{mutant.name}: {mutant.before!r} is not once in {original.__name__}")
    return source.replace(mutant.before, mutant.after)


def changed(system: System, module: str, source: str, name: str) -> System:
    """The system with that module's source in place of its own."""
    original = getattr(system, module)
    mutated = _executed(original, source, name)
    # What is made of it is made again, of the changed one.
    again, loaded = {module: mutated}, {original.__name__: mutated}
    for other in MADE_OF.get(module, ()):
        made = getattr(system, other)
        with patch.dict(sys.modules, loaded):
            again[other] = _executed(made, inspect.getsource(made), name)
        loaded[made.__name__] = again[other]
    return replace(system, **again)


def _executed(original: ModuleType, source: str, name: str) -> ModuleType:
    """A module like the original, of another source."""
    module = ModuleType(original.__name__)
    module.__package__, module.__file__ = original.__package__, original.__file__
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)
    return module


def smallest(mutant: Mutant, system: System) -> str:
    """The smallest counterexample of a mutated system, found by enumeration in order."""
    if mutant.module == "machine":
        return shortest_events(system.machine)
    if mutant.module == "verifier":
        return smallest_schedule(system.verifier)
    if mutant.module == "guard":
        return wrong_order(system)
    if mutant.module in ("program", "graphs"):
        return smallest_program(system)
    if mutant.module in ("space", "search"):
        found = first(planning(system, modules) for modules in range(1, MODULES + 1)).found
    elif mutant.module == "order":
        rings_of = range(1, EVERY_RUN.rings + 1)
        found = first(engines.disagreement(system, modules) for modules in rings_of).found
    else:
        found = first(disagreement(system, modules) for modules in range(1, BOUND + 1)).found
    return found.partition(":")[0] if found else "none"


def shortest_events(machine: Any) -> str:
    """The shortest sequence of events after which this machine and the true one differ. Slot 0
    is used by modules 1, 2, 1, 2, ..., so that the step matters; slot 1 is used by none."""
    from schedule import machine as true

    def user(slot: int, step: int) -> int:
        return 1 + step % 2 if slot == 0 else EMPTY

    alphabet: list[tuple[str, tuple[int, ...]]] = [
        ("CopyBegins", (slot, module)) for slot, module in ((0, 1), (0, 2), (1, 1))
    ]
    alphabet += [("CopyLands", (0,)), ("ModuleBegins", (0, 1)), ("ModuleEnds", (0,))]
    alphabet.append(("ModuleArrives", (1,)))
    level: list[tuple[tuple[str, ...], Any, Any]] = [((), true.start(2), machine.start(2))]
    for _ in range(5):
        following = []
        for (path, ours, theirs), (name, arguments) in product(level, alphabet):
            a = true.transition(ours, getattr(true, name)(*arguments), user)
            b = machine.transition(theirs, getattr(machine, name)(*arguments), user)
            here = (*path, f"{name}({', '.join(map(str, arguments))})")
            if repr(a) != repr(b):
                return " ".join(here)
            if not isinstance(a, true.Objection):
                following.append((here, a, b))
        level = following
    return "none"


def smallest_schedule(verifier: Any) -> str:
    """The smallest table of one slot, at most one refill after each module, of which a mutated
    local check finds something else than the true one."""
    from schedule import verifier as true

    for modules in (1, 2, 3):
        choices = [(), *(((0, module),) for module in range(modules))]
        for after in product(choices, repeat=modules):
            none: Any = ((),)
            preload: Any = ((0, 0),)
            tables: Any = (preload, none, none * modules, after, none)
            schedule = Schedule(Ring(modules, 1), "table", (0,) * modules, *tables)
            ours, theirs = true.check(schedule), verifier.check(schedule)
            if [v.property for v in ours.violations] != [v.property for v in theirs.violations]:
                return f"N={modules}, K=1, after: {after}"
    return "none"


def smallest_program(system: System) -> str:
    """The smallest safe schedule whose program has a fault, by this lowering: every engine must
    find one, or they disagree; or whose program gives the runtime something else."""
    for policy, ring in rings(system.policy.NAMED.values(), EVERY_RUN.rings):
        other = engines.other_parts(system, policy(ring))
        if other:
            return f"N={ring.modules}, K={ring.slots}, {policy.name}, {other}"
        safe = system.verifier.check(policy(ring)).safe
        for case in cases(system, policy, ring) if safe else ():
            found = engines.refute(system, case)
            if any(found.values()):
                names = "; ".join(f"{engine}: {', '.join(each)}" for engine, each in found.items())
                assert all(found.values()), f"{case.name}: {names}"
                return f"{case.name} ({names})"
    return "none"
