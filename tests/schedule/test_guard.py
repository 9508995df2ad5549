"""What the guard lets the host issue; claim 7 is about what that leads to."""

from __future__ import annotations

import pytest

from schedule.guard import Copied, arrives, innermost, is_resident, resumes


def test_what_the_guard_says() -> None:
    assert (arrives(True), arrives(False)) == (("run",), ("reload", "run"))
    assert (resumes(True), resumes(False)) == (("resume",), ("reload", "resume"))
    assert is_resident(Copied(2, 5), 2, 5)
    assert not is_resident(Copied(2, 5), 2, 6)
    assert not is_resident(Copied(2, 5), 1, 5)
    assert not is_resident(Copied(), 0, 0)


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([], []),
        ([(0, 0)], [0]),
        ([(0, 0), (1, 1)], [1, 0]),
        ([(0, 0), (1, 0)], [1]),  # from one slot
        ([(0, 0), (0, 1)], [1]),  # of one module
        ([(0, 0), (1, 0), (1, 1)], [2, 0]),  # the middle one waits, and keeps nothing back
        ([(0, 0), (1, 1), (0, 0), (2, 2)], [3, 2, 1]),
    ],
)
def test_the_innermost_resumes(runs: list[tuple[int, int]], found: list[int]) -> None:
    assert innermost(runs) == found
