"""Run a user's own code on symbolic numbers, and refuse what would tell them from ints.

A number's type, its identity and its attributes are no part of a policy: a policy that asks for
them could be one thing on ints and another one here. Python lets no wrapper answer ``x is True``
or ``type(x)``, so these are found in the instructions, before they are executed.
"""

from __future__ import annotations

import builtins
import dis
import gc
import operator
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import z3

from proofs import symbolic
from proofs.reach import depends_on, reached
from proofs.symbolic import DeadPath, NotFollowed
from schedule.budget import OutOfBudget, within_budget
from schedule.users import bare

FREE = tuple(f"{Path(str(package.__file__)).parent}{os.sep}" for package in (z3, symbolic))
"""Folders whose code is ours or the solver's: nothing of a policy's."""
OURS = (*FREE, within_budget.__code__.co_filename)

ASKS_FOR_TYPES = {"type", "isinstance", "issubclass", "id", "callable", "hasattr", "getattr"}
ASKS_FOR_TYPES |= {"vars", "dir", "globals", "locals", "eval", "exec", "getsizeof", "setattr"}
ASKS_FOR_TYPES |= {"is_", "is_not", "attrgetter", "methodcaller"}
LOOKS = tuple(vars(builtins)[name] for name in sorted(ASKS_FOR_TYPES & set(vars(builtins))))
LOOKS += (operator.is_, operator.is_not, operator.attrgetter, operator.methodcaller)


class LooksBehind(NotFollowed):
    """The policy asks for more than a number's value, so it may be another one on ints."""


class Raised(Exception):
    """The policy raised; the message says what."""


def aliased(function: Callable[..., Any]) -> str:
    """What asks for more than numbers and is reached under another name, or an empty text."""
    for name, found in reached(function):
        if any(found is one for one in LOOKS) and name != found.__name__:
            return f"{name} is {found.__name__}"
    return ""


Way = list[tuple[CodeType, int]]
"""Every instruction that was executed, in order: its code, and its place there."""


def followed(function: Callable[..., Any], way: Way | None = None) -> Callable[..., Any]:
    """The bare function, under the budget, refused where it looks at more than numbers, or calls
    what depends on more than its arguments. way: is given the instructions that it executes.
    Whatever it raises comes out as ``Raised``, a SystemExit too."""
    function = bare(function)
    noted: Way = [] if way is None else way

    def call(*arguments: Any) -> Any:
        refused: list[str] = []
        known: dict[int, dict[int, str]] = {}  # by identity: hashing a code object is slow

        def refuse(frame: FrameType) -> None:
            noted.append((frame.f_code, frame.f_lasti))
            if id(frame.f_code) not in known:
                known[id(frame.f_code)] = _refused(frame.f_code)
            why = known[id(frame.f_code)].get(frame.f_lasti)
            if why is not None:
                refused.append(why)

        def called(frame: FrameType, event: str, what: Any) -> None:
            if event == "c_call" and not frame.f_code.co_filename.startswith(OURS):
                on = depends_on(what)
                if on:
                    refused.append(f"{on}: it calls {what.__name__}")

        noted.clear()
        before, collects = sys.getprofile(), gc.isenabled()
        gc.disable()  # callbacks of the collector (Hypothesis has one) are no part of the policy
        sys.setprofile(called)
        try:
            result = within_budget(function, *arguments, free=FREE, refuse=refuse)
        except (NotFollowed, DeadPath, OutOfBudget, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not refused:
                raise Raised(f"it raises {type(error).__name__}") from error
        finally:
            sys.setprofile(before)
            if collects:
                gc.enable()
        if refused:  # said at the end, where the function can't catch it
            raise LooksBehind(refused[0])
        if isinstance(result, int) and type(result) not in (int, bool):
            raise LooksBehind("a number of a kind of its own")
        return result

    return call


@lru_cache(maxsize=1_000)
def _refused(code: CodeType) -> dict[int, str]:
    """The instructions of this code that are not followed, by offset, and why."""
    found: dict[int, str] = {}
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        name, argument = instruction.opname, instruction.argval
        if name == "IS_OP" and not _with_none(instructions[max(0, at - 2) : at + 1]):
            found[instruction.offset] = "`is` between numbers"
        elif name in ("MATCH_CLASS", "LOAD_BUILD_CLASS", "IMPORT_NAME"):
            found[instruction.offset] = f"the instruction {name}"
        elif name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD"):
            if argument in ASKS_FOR_TYPES:
                found[instruction.offset] = f"the name {argument}"
            elif argument.startswith("__") and argument.endswith("__"):
                found[instruction.offset] = f"the attribute {argument}"
    return found


def _with_none(last: list[dis.Instruction]) -> bool:
    """Whether the last of these instructions compares with None, on either side of ``is``, however
    it is come to."""
    if any(one.is_jump_target for one in last[1:]):
        return False
    nones = [one.opname == "LOAD_CONST" and one.argval is None for one in last[:-1]]
    simple = last[-2].opname in ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL")
    return nones[-1] or (nones[0] and simple)
