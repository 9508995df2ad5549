"""Call a user's function with a bound on the instructions of Python that it may execute.

Instructions, not seconds: the same function is stopped at the same place on every machine. Not
lines either: ``while True: pass`` executes none. A loop inside one call of a built-in, such as
``sum(itertools.count())``, executes no instruction and is not stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
INSTRUCTIONS = 1_000_000


class OutOfBudget(BaseException):
    """Too many instructions. Not an Exception, so that a policy does not swallow it."""


def within_budget(
    function: Callable[..., Result],
    *arguments: Any,
    free: tuple[str, ...] = (),
    refuse: Callable[[FrameType], None] | None = None,
) -> Result:
    """``function(*arguments)``; OutOfBudget after INSTRUCTIONS instructions.

    Those of files in the folders ``free`` are not counted. ``refuse`` sees every other frame before
    each of its instructions, and may raise. A trace function that is already set (a debugger's, a
    coverage tool's) is suspended for the call. A function that catches OutOfBudget itself is not
    stopped again, since Python ends tracing when a trace function raises; if it returns, that is
    no result.
    """
    executed = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal executed
        if event == "call":
            if frame.f_code.co_filename.startswith(free):
                return None
            # Set before the opcode flag: Python 3.13 else sends no opcode events.
            frame.f_trace, frame.f_trace_lines, frame.f_trace_opcodes = count, False, True
        if event == "opcode":
            executed += 1
            if executed > INSTRUCTIONS:
                raise OutOfBudget(f"did not return within {INSTRUCTIONS:,} instructions")
            if refuse is not None:
                refuse(frame)
        return count

    before, here = sys.gettrace(), sys._getframe()
    here.f_trace_opcodes = True  # Python 3.12 sends opcode events only where a caller asks too
    sys.settrace(count)
    try:
        result = function(*arguments)
    finally:
        sys.settrace(before)
    if executed > INSTRUCTIONS:  # whatever caught that
        raise OutOfBudget(f"did not return within {INSTRUCTIONS:,} instructions")
    return result
