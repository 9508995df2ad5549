"""What every test shares: two workers of ``pytest -n 2`` fit two cores, and end together."""

from __future__ import annotations

import gc
import os

import pytest

# Before torch is imported, and in the processes that tests start. Threads beyond the cores wait for
# each other, busily: the demo takes twice the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

LONG = ("test_readme.py", "test_proofs_by_hand.py")
"""What takes long in one piece comes first: else one worker has it at the end, alone."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "unpoisoned: slots keep their bytes after a run")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish() -> None:
    """What was imported by then, a million objects in a worker, is not looked through again by each
    collection of garbage: that was a sixth of the whole time."""
    gc.collect()
    gc.freeze()
