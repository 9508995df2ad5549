"""Standard output as it may be: closed by its reader, or unable to show a letter."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

CLOSED = 141
"""The exit code when the reader of standard output is gone: 128 and the number of SIGPIPE, as a
shell reports a program that this signal ended."""


def printed(main: Callable[[], int]) -> int:
    """Run a command line; the result is its exit code.

    Letters that standard output can't show are escaped. Once nobody reads it (``... | head -1``)
    the command ends without a word, and the exit code is CLOSED.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # What is left has no reader: without this, Python would try once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
