"""Sizes as people write them, and what is none."""

from __future__ import annotations

import mmap
import sys
from typing import Any

import pytest

from runtime.host import chunk_of, limit_of
from runtime.sizes import bytes_of
from schedule.errors import OffloadError


class Whole:
    """As a numpy integer is."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (0, 0),
        (5, 5),
        (Whole(), 7),
        ("12", 12),
        ("12B", 12),
        ("20GB", 20 * 10**9),
        ("16GiB", 16 * 2**30),
        (" 1.5 GiB ", 3 * 2**29),
        ("0.1KiB", 102),
        ("3mb", 3_000_000),
        ("2 tib", 2 * 2**40),
        ("007KB", 7000),
    ],
)
def test_a_size(value: Any, size: int) -> None:
    assert bytes_of(value, "pin") == size


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (-1, "pin is -1 bytes; a size can't be negative"),
        (True, "pin must be a size in whole bytes or text like '16GiB', got True"),
        (None, "got None"),
        (1e9, "got 1000000000.0"),
        (float("nan"), "got nan"),
        ([16], r"got \[16\]"),
        ("", "pin='' is no size; write a number and a unit"),
        ("-2GB", "pin='-2GB' is no size"),
        ("nan", "pin='nan' is no size"),
        ("1e9", "unknown|no size"),
        ("16 Gi", "pin='16 Gi' has the unknown unit 'Gi'; the units are B, KB, MB, GB, TB, KiB"),
        ("16G", "unknown unit 'G'"),
        ("True", "pin='True' is no size"),
        ("1_000", "no size"),
        ("\N{ARABIC-INDIC DIGIT THREE}GB", "no size"),
    ],
)
def test_what_is_no_size(value: Any, said: str) -> None:
    with pytest.raises(OffloadError, match=said):
        bytes_of(value, "pin")


def test_how_much_may_be_locked() -> None:
    assert limit_of(False) == limit_of(0) == limit_of("0GB") == 0
    assert limit_of(True) == sys.maxsize
    assert limit_of("1MiB") == 2**20
    assert limit_of(mmap.PAGESIZE) == mmap.PAGESIZE
    with pytest.raises(OffloadError, match=r"pin=1 is 1 bytes, less than a page .* pin=True"):
        limit_of(1)


def test_how_long_a_chunk_may_be() -> None:
    assert chunk_of(None) is None
    assert chunk_of("32MiB") == 32 * 2**20
    for value in (0, 65535, "1KB"):
        with pytest.raises(OffloadError, match="give at least 65536, like '32MiB', or None"):
            chunk_of(value)
    for value in (True, -1, "much"):
        with pytest.raises(OffloadError, match="chunk"):
            chunk_of(value)
