"""A KeyboardInterrupt at any line of the runtime, as one may come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import runtime

HERE = str(Path(runtime.__file__).parent)


def interrupted_at(number: int, function: Callable[[], object]) -> str | None:
    """Call the function, interrupted before that line of the runtime, counted from 1: the file
    and line, or None if it ended before."""
    seen = 0
    where = None

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen, where
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event == "line":
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
