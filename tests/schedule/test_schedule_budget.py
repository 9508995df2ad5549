"""A bound on what a user's function executes: deterministic, and without a trace left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from schedule.budget import INSTRUCTIONS, OutOfBudget, within_budget


def spin() -> None:
    while True:
        pass


def count_to(limit: int) -> int:
    total = 0
    for number in range(limit):
        total += number
    return total


def test_a_loop_without_a_line_in_it_is_stopped() -> None:
    with pytest.raises(OutOfBudget, match="1,000,000 instructions"):
        within_budget(spin)


def test_results_and_exceptions_pass_through() -> None:
    assert within_budget(count_to, 100) == 4950
    with pytest.raises(ZeroDivisionError):
        within_budget(lambda: 1 // 0)


def test_the_bound_is_on_instructions_of_all_frames() -> None:
    assert within_budget(count_to, INSTRUCTIONS // 20) > 0
    with pytest.raises(OutOfBudget):
        within_budget(lambda: [count_to(INSTRUCTIONS // 20) for _ in range(20)])


def test_who_catches_it_has_no_result() -> None:
    def catches() -> int:
        try:
            return count_to(INSTRUCTIONS)
        except BaseException:
            return 7

    with pytest.raises(OutOfBudget):
        within_budget(catches)


def test_free_modules_are_not_counted() -> None:
    free = (str(Path(__file__).parent),)
    assert within_budget(count_to, INSTRUCTIONS, free=free) > 0


def test_an_earlier_trace_function_comes_back() -> None:
    def trace(frame: FrameType, event: str, argument: Any) -> None:
        del frame, event, argument

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        within_budget(count_to, 3)
        assert sys.gettrace() is trace
        with pytest.raises(OutOfBudget):
            within_budget(spin)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
