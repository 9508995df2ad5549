"""A drawing's picture and trace as files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from schedule.drawing import Drawing
from schedule.perfetto import trace
from schedule.picture import picture

STANDARD_OUTPUT = "-"


class Files(NamedTuple):
    """Where the picture, the trace and the JSON go, if they are wanted: paths, or ``-``."""

    svg: str | None
    trace: str | None
    json: str | None = None


def write_files(drawing: Drawing, files: Files) -> list[str]:
    """Write picture and trace; the paths of those that went to a file. ValueError for a path
    that can't be written, and for two documents at one place."""
    require_different(files._asdict())
    makers = {files.svg: picture, files.trace: trace}
    written = [place for place in makers if place not in (None, STANDARD_OUTPUT)]
    for place in written:
        write_text(str(place), makers[place](drawing))
    if STANDARD_OUTPUT in makers:  # only now: nothing is printed if a path is bad
        sys.stdout.write(makers[STANDARD_OUTPUT](drawing))
    return list(map(str, written))


def require_different(places: Mapping[str, str | None]) -> None:
    """ValueError for two documents at one place. places: by option, where it goes, if anywhere."""
    given = [(f"--{name}", place) for name, place in places.items() if place is not None]
    for _, place in given:
        names = [name for name, other in given if _real(other) == _real(place)]
        if len(names) > 1:
            where = "standard output" if place == STANDARD_OUTPUT else repr(place)
            raise ValueError(f"{' and '.join(names)} both go to {where}; name different files")


def _real(place: str) -> str:
    """A place under the one name that it has by any path."""
    return place if place == STANDARD_OUTPUT else os.path.abspath(place)


def write_text(place: str, text: str) -> None:
    """ValueError for a path that can't be written."""
    try:
        Path(place).write_text(text, encoding="ascii", newline="\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"can't write {place!r}: {why}; name a file in a folder of yours"
        ) from None
