"""Everything that needs hardware, in one command: ``python -m benchmarks device``.

With ``--tiny`` all of it runs at small sizes, on the tests' simulated device where there is no
accelerator. A part that fails costs no other its rows, and what no time is left for is said.
"""

from __future__ import annotations

import datetime
import logging
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.device_baselines import BASELINES, baselines
from benchmarks.device_calibration import calibration
from benchmarks.device_claims import CLAIMS, claims
from benchmarks.device_measure import free
from benchmarks.device_passes import DECODE, PREFILL, SMALL, decode, prefill, small
from benchmarks.device_right import RIGHT, right
from benchmarks.device_rows import Header, Row, guarded
from benchmarks.device_sizes import CALIBRATION, FULL, TINY_SIZES, Bench
from benchmarks.simulated import SIMULATED, started
from runtime import memory
from runtime.device import streams_of
from runtime.log import log
from runtime.report import device_memory
from schedule.errors import OffloadError

SECONDS = 300
PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    CALIBRATION: calibration,
    RIGHT: right,
    DECODE: decode,
    PREFILL: prefill,
    CLAIMS: claims,
    SMALL: small,
    BASELINES: baselines,
}


def lines(*, tiny: bool, seconds: float) -> Iterator[Header | Row]:
    """The header and all rows. No part, and no row, is begun after so many seconds; one that has
    begun is finished. OffloadError, with what to do, where there is no device to run on."""
    deadline = time.monotonic() + seconds
    device = _device(tiny)
    simulated = device.type == SIMULATED
    yield _header(device, simulated, tiny)
    bench = Bench(device, simulated, TINY_SIZES if tiny else FULL, deadline)
    threads, level = torch.get_num_threads(), log.level
    if simulated:
        torch.set_num_threads(1)  # how work is split changes the rounding
    log.setLevel(logging.ERROR)  # the rows say it all
    try:
        with torch.no_grad():
            for name, part in PARTS.items():
                for row in _in_time(name, part, bench, seconds):
                    bench = bench.calibrated(row)
                    yield row
                free()
    finally:
        torch.set_num_threads(threads)
        log.setLevel(level)


def _in_time(
    name: str, part: Callable[[Bench], Iterator[Row]], bench: Bench, seconds: float
) -> Iterator[Row]:
    """The part's rows, until the time is spent."""
    rows = guarded(name, "", partial(part, bench))
    while bench.left > 0:
        row = next(rows, None)
        if row is None:
            return
        yield row
    rows.close()
    yield Row(name, "", note=f"left out, or what is left of it: the {seconds:g} s are spent")


def _device(tiny: bool) -> torch.device:
    """The accelerator; for tiny sizes the simulated one, where there is no other."""
    if torch.accelerator.is_available():
        return streams_of(None).device
    if not tiny:
        raise OffloadError(
            "this process has no accelerator; run it on a machine that has one, with a torch that "
            "knows it (torch.accelerator.is_available()), or add --tiny to try it on a simulated "
            "one"
        )
    started()
    return streams_of(None).device


def _header(device: torch.device, simulated: bool, tiny: bool) -> Header:
    module = torch.get_device_module(device)
    name = module.get_device_name(device) if hasattr(module, "get_device_name") else device.type
    _, free_bytes = device_memory(device)
    return Header(
        device=str(device),
        name=name,
        torch=torch.__version__,
        system=f"Python {platform.python_version()}, {platform.platform()}",
        date=datetime.date.today().isoformat(),
        host_bytes=memory.available(),
        device_bytes=free_bytes,
        simulated=simulated,
        tiny=tiny,
    )
