"""What offloading costs: the hooks, and passes beside the plain model and other systems.

Only the ratios of one run mean something, and on a simulated device not even those of pass times:
there it is the host's work alone that is real.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.hooks import HooksLine, hooks
from benchmarks.passes import PassLine, linears, seed
from benchmarks.simulated import started
from runtime.device import streams_of


@dataclass(frozen=True, slots=True)
class Note:
    """Something to know when reading the other lines."""

    text: str

    def __str__(self) -> str:
        return self.text

    def json(self) -> dict[str, Any]:
        return {"part": "note", "text": self.text}


INLINE = "On a plain CPU copies run inline and hide behind nothing: pass times add them up."
SIMULATED = "The device is simulated: its passes take the simulation's time, not a device's."


def lines(*, tiny: bool, full: bool, simulated: bool) -> Iterable[Note | HooksLine | PassLine]:
    """tiny: sizes to see that it works.     full: the seed's shape at the size of Qwen3-0.6B.
    simulated: start the simulated accelerator of the tests, and run on it too."""
    if simulated:
        started()
    cpu, device = torch.device("cpu"), streams_of(None).device
    if device.type == "cpu":
        yield Note(INLINE)
    elif simulated:
        yield Note(SIMULATED)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # how work is split changes the rounding, and the times
    try:
        for one in dict.fromkeys((cpu, device)):
            yield from hooks(one, *((4, 3) if tiny else (16, 300)))
        sizes = (4, 32, 2) if tiny else (12, 512, 30)
        yield from linears(device, *sizes)
        yield from seed(device, full, 2 if tiny else 20)
    finally:
        torch.set_num_threads(threads)
