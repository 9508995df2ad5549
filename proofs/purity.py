"""Is a policy a function of its arguments alone? Asked before its answers are believed.

What its code reaches is looked at: the clock, chance, the world outside, an iterator, something
that it assigns. Then it is asked for every small ring twice, in opposite orders: other answers, or
an object within its reach that has changed, are state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from proofs.enumeration import SMALL, rings
from proofs.reach import assigned, reached
from schedule.policy import Policy
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, Boundary
from schedule.users import bare, call_text, shown

CLOCK, CHANCE, OUTSIDE = "the clock", "chance", "the world outside"
IMPURE = {
    **dict.fromkeys(("time", "datetime", "_datetime", "sched"), CLOCK),
    **dict.fromkeys(("random", "_random", "secrets", "uuid", "numpy.random"), CHANCE),
    **dict.fromkeys(("os", "posix", "nt", "io", "_io", "gc", "inspect", "ctypes"), OUTSIDE),
    **dict.fromkeys(("threading", "_thread", "socket", "subprocess", "sys"), OUTSIDE),
}
"""Modules, and on what an answer depends that comes from one."""

ASKS = (input, open)
HALVES = (PRELOAD, ENTER, BEFORE, AFTER, LEAVE)
Call = tuple[str, Callable[..., Any], dict[str, Any]]


def impure(policy: Policy) -> str:
    """Why the policy is no function of its arguments alone, or an empty text. PolicyError if it is
    no policy at all. Its answers are compared for all rings to 12x12."""
    functions = [bare(function) for _, function in _functions(policy)]
    for function in functions:
        for name, found in (("", function), *reached(function)):
            why = _refused(name, found)
            if why:
                return why
    before = _state(functions)
    calls = [call for ring in rings(policy, SMALL, 0) for call in _calls(policy, ring)]
    first = [function(*arguments.values()) for _, function, arguments in calls]
    again = [function(*arguments.values()) for _, function, arguments in reversed(calls)]
    after = _state(functions)
    changed = next((name for name in before if before[name] != after.get(name)), None)
    if changed is not None:
        return f"it keeps state: {changed} changes from call to call"
    for (name, _, arguments), one, other in zip(calls, first, reversed(again), strict=True):
        if type(one) is not type(other) or one != other:
            answers = f"returned {shown(one)}, and {shown(other)} when asked again"
            return f"it keeps state or is random: {name}{call_text(arguments)} {answers}"
    return ""


def _functions(policy: Policy) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in ("slot_of", "target", "refill", "passes"):
        function = getattr(policy, name)
        if function is not None:
            yield name, function


def _calls(policy: Policy, ring: Any) -> Iterator[Call]:
    """Every call that makes the ring's schedule, and for rules for refills some more."""
    functions, steps = dict(_functions(policy)), policy.steps(ring)
    yield "passes", policy.passes, {"ring": ring}
    for step in range(steps):
        yield "slot_of", policy.slot_of, {"step": step, "ring": ring}
        if "target" in functions:
            sizes = {"slots": ring.slots, "modules": ring.modules}
            yield "target", functions["target"], {"index": step, **sizes}
        for half in HALVES if "refill" in functions else ():
            for slot in range(ring.slots):
                where = {"boundary": Boundary(half, step), "slot": slot, "ring": ring}
                yield "refill", functions["refill"], where


def _refused(name: str, found: Any) -> str:
    """What is wrong with a policy that reaches this."""
    kinds = (found, type(found), getattr(found, "__self__", None))
    for kind in (*kinds, type(kinds[-1])):
        on = IMPURE.get(_module(kind)) or IMPURE.get(_module(kind).partition(".")[0])
        if on:
            return f"it depends on {on}: it uses {name}"
    if any(found is one for one in ASKS):
        return f"it depends on {OUTSIDE}: it uses {name}"
    if hasattr(type(found), "__next__"):
        return f"it keeps state: {name} is an iterator"
    if isinstance(found, FunctionType):
        variable = next(assigned(found), None)
        if variable is not None:
            return f"it keeps state: it assigns {variable}"
    return ""


def _module(found: Any) -> str:
    """Where something is defined; of a module itself, only what is used of it counts."""
    name = "" if isinstance(found, ModuleType) else getattr(found, "__module__", "")
    return name if isinstance(name, str) else ""


def _state(functions: Iterable[Callable[..., Any]]) -> dict[str, Any]:
    """What is in the objects within reach, by name."""
    return {
        name: _contents(found, ())
        for function in functions
        for name, found in reached(function)
        if not isinstance(found, ModuleType | type)
    }


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
    if hasattr(found, "__dict__") and not isinstance(found, ModuleType | type):
        return (type(found), _contents(vars(found), within))
    return (type(found), shown(found))
