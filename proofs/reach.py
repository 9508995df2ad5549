"""What a policy's code can reach besides its arguments, walked before any of it is run.

So what a branch does that no small ring takes is seen too. What is reached through an object's
attribute, or imported during a call, is not.
"""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from inspect import getattr_static
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

Named = tuple[str, Any]
ASSIGNS = {"STORE_GLOBAL", "DELETE_GLOBAL"}
"""Instructions that change what is there at the next call."""

CLOCK, CHANCE, OUTSIDE = "the clock", "chance", "the world outside"
IMPURE = {
    **dict.fromkeys(("time", "datetime", "_datetime", "sched"), CLOCK),
    **dict.fromkeys(("random", "_random", "secrets", "uuid", "numpy.random"), CHANCE),
    **dict.fromkeys(("os", "posix", "nt", "posixpath", "genericpath", "pathlib"), OUTSIDE),
    **dict.fromkeys(("io", "_io", "gc", "inspect", "ctypes", "sys", "subprocess"), OUTSIDE),
    **dict.fromkeys(("threading", "_thread", "socket", "_socket", "contextvars"), OUTSIDE),
}
"""Modules, and on what an answer depends that comes from one."""

ASKS = (input, open)


def reached(function: Callable[..., Any]) -> Iterator[Named]:
    """The function, and every object that its code names, or that of a function which it reaches:
    globals, closures, defaults, attributes of modules. By name, the nearest first."""
    pending: deque[Named] = deque([("itself", function)])
    seen: dict[int, Any] = {}  # with the objects, so that no identity is used again
    while pending:
        name, found = pending.popleft()
        if id(found) not in seen:
            seen[id(found)] = found
            pending.extend(_inside(found))
            yield name, found


def depends_on(found: Any) -> str:
    """On what else than its arguments the answer of a function, an object's method or an object of
    this kind depends; or an empty text."""
    kinds = (found, type(found), getattr(found, "__self__", None))
    for kind in (*kinds, type(kinds[-1])):
        module = _module(kind)
        on = IMPURE.get(module) or IMPURE.get(module.partition(".")[0])
        if on:
            return f"it depends on {on}"
    return f"it depends on {OUTSIDE}" if any(found is one for one in ASKS) else ""


def _module(found: Any) -> str:
    """Where something is defined; of a module itself, only what is used of it counts."""
    name = "" if isinstance(found, ModuleType) else getattr(found, "__module__", "")
    return name if isinstance(name, str) else ""


def assigned(function: FunctionType) -> Iterator[str]:
    """The variables and attributes outside itself that the function's code assigns."""
    outer = set(function.__code__.co_freevars)
    for code in _codes(function.__code__):
        for instruction in dis.get_instructions(code):
            name, is_outer = instruction.opname, instruction.argval in outer
            if name in ASSIGNS or (name in ("STORE_DEREF", "DELETE_DEREF") and is_outer):
                yield str(instruction.argval)


def _inside(found: Any) -> Iterator[Named]:
    """What an object leads to, if it is one that a policy may be made of."""
    if isinstance(found, MethodType):
        yield "self", found.__self__
        yield found.__func__.__name__, found.__func__
    elif isinstance(found, partial):
        yield "a partial's function", found.func
        for value in (*found.args, *found.keywords.values()):
            yield "a partial's argument", value
    elif isinstance(found, FunctionType):
        yield from _closed_over(found)
        yield from _global(found)
    elif isinstance(found, dict | list | tuple | set | frozenset):
        for value in found.values() if isinstance(found, dict) else found:
            if not isinstance(value, int | float | str | bytes):
                yield "what is in a container", value
    elif isinstance(getattr(found, "__wrapped__", None), FunctionType):  # by functools.cache
        yield found.__wrapped__.__name__, found.__wrapped__
    elif isinstance(call := getattr_static(type(found), "__call__", None), FunctionType):
        yield type(found).__name__, call


def _closed_over(function: FunctionType) -> Iterator[Named]:
    """What is in the function's closure, and its arguments' defaults."""
    code, defaults = function.__code__, function.__defaults__ or ()
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell != CellType():  # an empty one
            yield name, cell.cell_contents
    first = code.co_argcount - len(defaults)
    for name, value in zip(code.co_varnames[first : code.co_argcount], defaults, strict=True):
        yield f"the default of {name}", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f"the default of {name}", value


def _global(function: FunctionType) -> Iterator[Named]:
    """The globals and built-ins that the code names, and what it names in their modules."""
    builtins: Any = function.__globals__.get("__builtins__", {})
    builtins = vars(builtins) if isinstance(builtins, ModuleType) else builtins
    known = {**builtins, **function.__globals__}
    names, attributes = dict[str, None](), dict[str, None]()
    for code in _codes(function.__code__):
        for instruction in dis.get_instructions(code):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                # pytest puts names with an @ into the asserts that it rewrites.
                if instruction.argval.isidentifier():
                    names[instruction.argval] = None
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                attributes[instruction.argval] = None
    yield from ((name, known[name]) for name in names if name in known)
    modules = [known[name] for name in names if isinstance(known.get(name), ModuleType)]
    for module in modules:  # a module's attribute may be one again
        for name in attributes:
            if name in vars(module):
                found = vars(module)[name]
                yield f"{module.__name__}.{name}", found
                if isinstance(found, ModuleType) and found not in modules:
                    modules.append(found)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code, and that of the functions and comprehensions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
