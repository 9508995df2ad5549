"""The tests' simulated device, for benchmarks that can do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schedule.errors import OffloadError

if TYPE_CHECKING:
    from tests.simdevice.device import SimDevice

SIMULATED = "simdev"


def started() -> SimDevice:
    """It is this process's accelerator from here on. OffloadError where it can't be built."""
    from tests.simdevice.device import start

    try:
        return start()
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise OffloadError(
            f"the simulated accelerator can't be built here ({first}); it needs a C++ compiler, "
            f"such as g++, and ninja"
        ) from error
