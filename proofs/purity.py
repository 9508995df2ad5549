"""Is a policy a function of its arguments alone? Asked before its answers are believed.

What its code reaches is looked at: the clock, chance, the world outside, an iterator, something
that it assigns. Then it is asked for every small ring twice, in opposite orders: other answers, or
an object within its reach that has changed, are state.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any

from proofs.enumeration import SMALL, rings
from proofs.integers import SymBool, SymInt
from proofs.reach import assigned, depends_on, reached
from schedule.policy import Policy
from schedule.table import PRELOAD, RUN, Boundary, around
from schedule.users import bare, call_text, shown

NUMBERS = (int, float, bool, type(None))
Call = tuple[str, Callable[..., Any], dict[str, Any]]


def impure(policy: Policy) -> str:
    """Why the policy is no function of its arguments alone, or an empty text. PolicyError if it is
    no policy at all. Its answers are compared for all rings to 12x12."""
    for function in _bare(policy):
        for name, found in reached(function):
            why = _refused(name, found)
            if why:
                return why
    before = state(policy)
    calls = [call for ring in rings(policy, SMALL, 0) for call in _calls(policy, ring)]
    first = [function(*arguments.values()) for _, function, arguments in calls]
    again = [function(*arguments.values()) for _, function, arguments in reversed(calls)]
    changed = changes(policy, before)
    if changed:
        return changed
    for (name, _, arguments), one, other in zip(calls, first, reversed(again), strict=True):
        # What is no number is no answer, and said to be none elsewhere.
        if type(one) in NUMBERS and (type(one) is not type(other) or one != other):
            answers = f"returned {shown(one)}, and {shown(other)} when asked again"
            return f"it keeps state or is random: {name}{call_text(arguments)} {answers}"
    return ""


State = dict[int, tuple[str, Any]]
"""By identity, the name of an object and what is in it."""


def state(policy: Policy) -> State:
    """The objects within reach of the policy's functions."""
    return {
        id(found): (name, _contents(found, ()))
        for function in _bare(policy)
        for name, found in reached(function)
        if not isinstance(found, ModuleType | type)
    }


def changes(policy: Policy, before: State) -> str:
    """What has changed in them since then, or an empty text."""
    after = state(policy)
    changed = [name for one, (name, was) in before.items() if after.get(one) != (name, was)]
    return f"it keeps state: {changed[0]} changes from call to call" if changed else ""


def _bare(policy: Policy) -> list[Callable[..., Any]]:
    return [bare(function) for _, function in _functions(policy)]


def _functions(policy: Policy) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in ("slot_of", "target", "refill", "passes"):
        function = getattr(policy, name)
        if function is not None:
            yield name, function


def _calls(policy: Policy, ring: Any) -> Iterator[Call]:
    """Every call that makes the ring's schedule."""
    functions = dict(_functions(policy))
    yield "passes", policy.passes, {"ring": ring}
    for step in range(policy.steps(ring)):
        yield "slot_of", policy.slot_of, {"step": step, "ring": ring}
        if "target" in functions:
            sizes = {"slots": ring.slots, "modules": ring.modules}
            yield "target", functions["target"], {"index": step, **sizes}
        for boundary in boundaries(step, ring.modules) if "refill" in functions else ():
            for slot in range(ring.slots):
                where = {"boundary": boundary, "slot": slot, "ring": ring}
                yield "refill", functions["refill"], where


def boundaries(step: int, modules: int) -> list[Boundary]:
    """Those of a step: a rule for refills is asked at no other ones."""
    preload = [Boundary(PRELOAD, 0)] if step == 0 else []
    return preload + [at for at in around(step, modules) if at.half != RUN]


def _refused(name: str, found: Any) -> str:
    """What is wrong with a policy that reaches this."""
    on = depends_on(found)
    if on:
        return f"{on}: it uses {name}"
    if hasattr(type(found), "__next__") or isinstance(found, ContextVar):
        return f"it keeps state: {name} is a {type(found).__name__}"
    if isinstance(found, FunctionType):
        variable = next(assigned(found), None)
        if variable is not None:
            return f"it keeps state: it assigns {variable}"
    return ""


def _contents(found: Any, within: tuple[int, ...]) -> Any:
    """Plain values that are equal while the object is as it is."""
    if id(found) in within:
        return "itself"
    within = (*within, id(found))
    if isinstance(found, dict):
        items = ((_contents(key, within), _contents(value, within)) for key, value in found.items())
        return (type(found), tuple(items))
    if isinstance(found, list | tuple | set | frozenset | deque):
        return (type(found), tuple(_contents(one, within) for one in found))
    if isinstance(found, SymInt | SymBool):
        return (type(found), id(found))  # kept from a call
    if isinstance(found, logging.Logger):
        return "a log"  # which remembers what is to be logged, and tells nobody
    if hasattr(found, "__dict__") and not isinstance(found, ModuleType | type):
        return (type(found), _contents(vars(found), within))
    return (type(found), shown(found))
