"""The lines of ``python -m benchmarks device``: a table for people, the same figures as JSON."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from runtime.sizes import megabytes

TOLERANCE = 0.1
"""A larger difference is no rounding, not even a compiler's over all layers."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line. What does not apply, or could not be measured, is None.

    part, what: of the benchmark, and what is measured, in words.
    seconds:    of a pass or a copy, by the device's events: the median.
    bytes:      that it copies.                   compute: its seconds with all weights kept.
    bound:      max(compute, bytes / peak), in seconds; peak: the highest rate of the calibration.
    ratio:      seconds to bound.                 of_peak: the rate to the peak.
    rate:       bytes / seconds, in 10**9 a second.
    stall:      seconds - compute.
    device, locked: bytes of weights on the device, and of page-locked host memory.
    host:       seconds that the host takes to issue a pass, for each layer of the model.
    units:      seconds in runs of one module.    planned: what the plan says that they are.
    difference: from the whole model's output, the largest, to its largest value; 0: bit for bit.
    note:       what else must be said.           failed: it is not as it must be, as note says.
    """

    part: str
    what: str
    seconds: float | None = None
    bytes: float | None = None
    compute: float | None = None
    bound: float | None = None
    ratio: float | None = None
    rate: float | None = None
    of_peak: float | None = None
    stall: float | None = None
    device: int | None = None
    locked: int | None = None
    host: float | None = None
    units: float | None = None
    planned: int | None = None
    difference: float | None = None
    note: str = ""
    failed: bool = False

    def __str__(self) -> str:
        cells = (
            _time(self.seconds),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.rate is None else f"{self.rate:.2f}",
            "" if self.of_peak is None else f"{self.of_peak:.0%}",
            _time(self.stall),
            _size(self.device),
            _size(self.locked),
            _time(self.host),
        )
        return _line(self.part, self.what, cells, "; ".join(self._said()))

    def _said(self) -> Iterator[str]:
        if self.failed:
            yield "FAILED"
        if self.units is not None:
            planned = "" if self.planned is None else f", planned {self.planned}"
            yield f"{self.units:.1f} units{planned}"
        if self.difference:
            yield f"differs by {self.difference:.2g}"
        if self.note:
            yield self.note

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Header:
    """Where and when the rows were measured, and what their columns are.

    host_bytes, device_bytes: of memory that is there to be had before the first part; None where
    nothing says it.
    """

    device: str
    name: str
    torch: str
    system: str
    date: str
    host_bytes: int | None
    device_bytes: int | None
    simulated: bool
    tiny: bool

    def __str__(self) -> str:
        words = [
            f"{self.device}, {self.name}, torch {self.torch}, {self.system}, {self.date}",
            f"free memory: {_size(self.host_bytes, UNKNOWN)} on the host, "
            f"{_size(self.device_bytes, UNKNOWN)} on the device",
        ]
        if self.simulated:
            words.append("The device is simulated: no time below is a device's.")
        if self.tiny:
            words.append("The sizes are tiny: only whether all of it works is to be seen.")
        columns = ("time", "bound", "GB/s", "peak", "stall", "device", "locked", "host")
        return "\n".join([*words, _line("part", "what", columns, "note")])

    def json(self) -> dict[str, Any]:
        return {"part": "header"} | asdict(self)


UNKNOWN = "it is not known how much"
WIDTHS = (10, 6, 7, 5, 10, 11, 11, 9)


def _line(part: str, what: str, cells: Iterable[str], note: str) -> str:
    columns = (f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    return f"{part:<12} {what:<46} {' '.join(columns)}  {note}".rstrip()


def _size(bytes_: int | None, otherwise: str = "") -> str:
    return otherwise if bytes_ is None else megabytes(bytes_)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.2f} ms" if abs(seconds) >= 1e-3 else f"{seconds * 1e6:.1f} us"


Rows = Generator[Row, None, None]


def guarded(part: str, what: str, rows: Callable[[], Iterable[Row]]) -> Rows:
    """The rows; an error ends them with a row that says it, and is lost to no others."""
    failed = None
    try:
        yield from rows()
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        failed = Row(part, what, note=f"{type(error).__name__}: {first}", failed=True)
    # Only now: until then the error keeps what its frames hold on the device.
    if failed is not None:
        yield failed
