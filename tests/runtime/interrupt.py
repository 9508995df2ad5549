"""A KeyboardInterrupt at any line of the runtime, as one may come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import runtime

HERE = str(Path(runtime.__file__).parent)


def begins_with(frame: FrameType) -> bool:
    """Whether the line is that of a ``with``, which is traced once more before its exit is called:
    no signal is looked at there, and one in the body leads to the exit."""
    return getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def interrupted_at(number: int, function: Callable[[], object]) -> str | None:
    """Call the function, interrupted before that line of the runtime, counted from 1: the file
    and line, or None if it ended before."""
    seen = 0
    where = None

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen, where
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "line" and not begins_with(frame):
            seen += 1
            if seen == number:
                where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        assert where is not None
    finally:
        sys.settrace(before)
    return where
