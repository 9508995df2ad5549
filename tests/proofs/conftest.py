"""What every test of the proofs shares."""

from __future__ import annotations

import pytest

from proofs import wrapped


@pytest.fixture(autouse=True)
def _few_rings_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy is compared with itself on wrapped numbers in rings to 6x6, to save time; one test
    does it to 12x12."""
    monkeypatch.setattr(wrapped, "SMALL", 6)
