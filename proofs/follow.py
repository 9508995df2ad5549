"""Run a user's own code on symbolic numbers, and refuse what would tell them from ints.

A number's type, its identity and its attributes are no part of a policy: a policy that asks for
them could be one thing on ints and another one here. Python lets no wrapper answer ``x is True``
or ``type(x)``, so these are found in the instructions, before they are executed.
"""

from __future__ import annotations

import builtins
import dis
import operator
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from proofs.reach import reached
from proofs.symbolic import DeadPath, NotFollowed
from schedule.budget import OutOfBudget, within_budget
from schedule.users import bare

FREE = ("z3", "proofs")
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


def followed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The bare function, under the budget, refused where it looks at more than numbers.
    Whatever it raises comes out as ``Raised``, a SystemExit too."""
    function = bare(function)

    def call(*arguments: Any) -> Any:
        refused: list[str] = []
        known: dict[int, dict[int, str]] = {}  # by identity: hashing a code object is slow

        def refuse(frame: FrameType) -> None:
            if id(frame.f_code) not in known:
                known[id(frame.f_code)] = _refused(frame.f_code)
            why = known[id(frame.f_code)].get(frame.f_lasti)
            if why is not None:
                refused.append(why)

        try:
            result = within_budget(function, *arguments, free=FREE, refuse=refuse)
        except (NotFollowed, DeadPath, OutOfBudget, KeyboardInterrupt):
            raise
        except BaseException as error:
            if not refused:
                raise Raised(f"it raises {type(error).__name__}") from error
        if refused:  # said at the end, where the function can't catch it
            raise LooksBehind(refused[0])
        return result

    return call


@lru_cache(maxsize=1_000)
def _refused(code: CodeType) -> dict[int, str]:
    """The instructions of this code that are not followed, by offset, and why."""
    found: dict[int, str] = {}
    before: Any = None
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
        if name == "IS_OP" and not none:
            found[instruction.offset] = "`is` between numbers"
        elif name in ("MATCH_CLASS", "LOAD_BUILD_CLASS", "IMPORT_NAME"):
            found[instruction.offset] = f"the instruction {name}"
        elif name.startswith("LOAD_") and name != "LOAD_CONST" and isinstance(argument, str):
            if argument in ASKS_FOR_TYPES:
                found[instruction.offset] = f"the name {argument}"
            elif argument.startswith("__") and argument.endswith("__"):
                found[instruction.offset] = f"the attribute {argument}"
        before = instruction
    return found
