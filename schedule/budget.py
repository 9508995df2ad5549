"""Call a user's function with a bound on the lines of Python that it may execute.

Lines, not seconds: the same function is stopped at the same place on every machine. A loop
inside one call of a built-in executes no line and is not stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
LINES = 100_000


class OutOfBudget(BaseException):
    """The function executed too many lines. Not an Exception: a policy must not swallow it."""


def within_budget(
    function: Callable[..., Result], *arguments: Any, free: tuple[str, ...] = ()
) -> Result:
    """``function(*arguments)``; OutOfBudget after LINES lines.

    Lines of modules whose top-level package is named in ``free`` are not counted. A trace
    function that is already set (a debugger's, a coverage tool's) is suspended for the call.
    """
    lines = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "call" and frame.f_globals.get("__name__", "").partition(".")[0] in free:
            return None
        if event == "line":
            lines += 1
            if lines > LINES:
                raise OutOfBudget(f"did not return within {LINES} lines of Python")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        return function(*arguments)
    finally:
        sys.settrace(before)
