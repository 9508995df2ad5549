"""Times to be compared, taken in turn: what slows the machine for a while slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(
    arms: Mapping[str, Callable[[], object]], rounds: int, wait: Callable[[], object]
) -> dict[str, float]:
    """Seconds of each arm's call, the device waited for: medians over the rounds. Each arm is
    called three times before, to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(-3, rounds):
        for name, call in arms.items():
            start = time.perf_counter()
            call()
            wait()
            took = time.perf_counter() - start
            if number >= 0:
                seconds[name].append(took)
    return {name: statistics.median(one) for name, one in seconds.items()}
