"""Inductor's freezing is refused: it makes constants of weights, which are then on the device for
good, and no more what was loaded since. The slots would be passed by.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any, Protocol
from weakref import WeakSet

from schedule.errors import OffloadError


class Running(Protocol):
    """The hooks of an offload: the runs under way, and their thread. What is compiled in it then is
    such a module, or within one."""

    _running: list[Any]
    _thread: int


WATCHED: WeakSet[Running] = WeakSet()
"""Whose modules must not be frozen: Dynamo's callbacks are the process's."""


def watch(hooks: Running) -> None:
    """From now on refuse to freeze what is compiled while one of these hooks' modules runs. To be
    called again now and then: a reset of the compiler forgets it."""
    WATCHED.add(hooks)
    callback = sys.modules.get("torch._dynamo.callback")  # closing hooks to Dynamo imports it
    if callback is not None and _refuse not in callback.callback_handler.start_callbacks:
        callback.on_compile_start(_refuse)


def freezes() -> bool:
    """Whether inductor is set to."""
    config = sys.modules.get("torch._inductor.config")  # its import takes a second
    return config is not None and bool(config.freezing)


def refuse() -> None:
    """OffloadError if what is compiled now would be frozen."""
    if freezes():
        raise OffloadError(
            "inductor's freezing would make constants of what an offloaded model's slots hold "
            "while it is compiled: set torch._inductor.config.freezing = False"
        )


def _refuse(_: object) -> None:
    if any(one._running and one._thread == get_ident() for one in WATCHED):
        refuse()
