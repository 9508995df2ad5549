"""Host blocks: ordinary memory here, page-locked in ``locked``.

Only from page-locked memory does a copy run beside the host and the compute. What can't be locked
is ordinary memory, just as right and slower.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress

import torch

from runtime.layout import Block, Layout, Segment
from runtime.log import log
from runtime.sizes import bytes_of
from schedule.errors import OffloadError

PAGE = mmap.PAGESIZE
LEAST_CHUNK = 64 * 1024
"""Below so many bytes a copy's own cost outweighs that of its bytes."""


def limit_of(pin: bool | int | str) -> int:
    """How many bytes may be locked. OffloadError for what is no size."""
    if isinstance(pin, bool):
        return sys.maxsize if pin else 0
    limit = bytes_of(pin, "pin")
    if 0 < limit < PAGE:
        raise OffloadError(
            f"pin={pin!r} is {limit} bytes, less than a page of {PAGE}; say pin=True to lock "
            f"everything, pin=False to lock nothing, or a budget like '16GiB'"
        )
    return limit


def chunk_of(chunk: int | str | None) -> int | None:
    """How long a copy may be, in bytes. OffloadError for what is no such size."""
    if chunk is None:
        return None
    size = bytes_of(chunk, "chunk")
    if size < LEAST_CHUNK:
        raise OffloadError(
            f"chunk={chunk!r} is {size} bytes; give at least {LEAST_CHUNK}, like '32MiB', or None "
            f"to copy each refill at one go"
        )
    return size


def pieces(
    block: Block, slot: torch.Tensor, chunk: int | None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The copies of one refill, as (part of the slot, part of the block): one a segment, and none
    longer than a chunk if the refill is longer than two.

    A copy engine serves its streams copy by copy, so that another stream's small upload waits for
    a chunk instead of the whole refill: the end of a copy is the gap.
    """
    size = sum(segment.bytes.numel() for segment in block)
    longest = chunk if chunk is not None and size > 2 * chunk else max(size, 1)
    for segment in block:
        for start in range(0, segment.bytes.numel(), longest):
            part, at = segment.bytes[start : start + longest], segment.offset + start
            yield slot[at : at + part.numel()], part


class HostMemory:
    """Host blocks that are not locked. A block is made when it is asked for, module by module, and
    given back likewise, so that a model is never there twice.

    notes: what could not be locked, and why, for people.
    """

    def __init__(self, layouts: Sequence[Layout]) -> None:
        self.layouts, self.notes = tuple(layouts), list[str]()
        self._live = {module: layout.weights for module, layout in enumerate(layouts)}
        self._locked: dict[int, tuple[int, int]] = {}
        self._refused = sys.maxsize

    @property
    def bytes_locked(self) -> int:
        """Page-locked bytes, from ``lock`` on."""
        return sum(size for size, _ in self._locked.values())

    def locked_beside(self, modules: Set[int]) -> int:
        """Page-locked bytes that stay when these modules are given up."""
        return sum(size for module, (size, _) in self._locked.items() if module not in modules)

    @property
    def bytes_pageable(self) -> int:
        """Bytes of weights that are not locked."""
        locked = sum(weights for _, weights in self._locked.values())
        return max(0, sum(self._live.values()) - locked)

    def is_locked(self, module: int) -> bool:
        """Whether all of the module's block is page-locked."""
        return module in self._locked

    def block(self, module: int) -> Block:
        """The module's block, whose bytes are not set."""
        return (Segment(0, empty_bytes(self.layouts[module].size)),)

    def lock(self) -> None:
        """Lock the blocks that are to be locked: all of them were made."""

    def release(self, module: int) -> None:
        """The module's block is given up; no copy that reads it is under way."""
        self._live.pop(module, None)

    def _locks(
        self, number: int, what: str, size: int, weights: int, lock: Callable[[], None]
    ) -> bool:
        """Whether the driver locks so many bytes, which count under this number. Where it refused
        once, only less is tried: a limit that is too low for one may do for a smaller one, and
        there is no use in a hundred refusals, each of which may first lock what it can."""
        if size >= self._refused:
            return False
        try:
            lock()
        except RuntimeError as error:
            self._refused = size
            reason = str(error).partition("\n")[0]
            note = f"{what}, {size} bytes, can't be page-locked ({reason})"
            self.notes.append(note)
            log.warning(
                "%s%s: it stays pageable, like all of that size or above that are not locked "
                "yet; their refills hold up the host and overlap nothing. Give a budget with pin=",
                note,
                _memlock(size),
            )
            return False
        self._locked[number] = size, weights
        return True


def empty_bytes(size: int, *, pin_memory: bool = False) -> torch.Tensor:
    # Whatever the default device is.
    return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pin_memory)


def _limit_of_process() -> int | None:
    """RLIMIT_MEMLOCK, in bytes; None if there is none."""
    with suppress(ImportError):  # on Windows
        import resource

        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        return None if limit == resource.RLIM_INFINITY else limit
    return None


def _memlock(size: int) -> str:
    limit = _limit_of_process()
    if limit is None or limit >= size:
        return ""
    return f"; this process may lock {limit} bytes (ulimit -l), if its driver asks for that"


def note_memlock(size: int) -> None:
    """Before anything is locked. No warning: most drivers lock without asking for that limit."""
    if text := _memlock(size):
        log.info("%d bytes are to be page-locked%s", size, text)
