"""The table of public reports: each has tests, which exist, or a sentence why it has none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REPORTS, MOST_WITHOUT = 73, 10
WITHOUT = re.compile(r"not applicable: [a-z].{20,}\.")
"""How a report without a test must say why."""
TEST = re.compile(r"`([^`]+)::([^`]+)`")


def rows(text: str) -> list[tuple[str, str]]:
    """(report, what the table says of it)."""
    lines = (line.strip("|\n ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    found = [(report, said) for report, said in lines if not report.startswith(("report", "---"))]
    assert all(report and said for report, said in found)
    return found


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The test functions of a file; none if there is no such file."""
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    named = (n.name for n in body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))
    return frozenset(named)


def wrong(text: str) -> Iterator[str]:
    """What is wrong with a table, in words."""
    without = 0
    for report, said in rows(text):
        tests, left = TEST.findall(said), TEST.sub("", said).replace("<br>", "").strip()
        if not tests and WITHOUT.fullmatch(left):
            without += 1
        elif not tests or left:
            yield f"{report}: neither tests nor a reason: {left!r}"
        for path, name in tests:
            if name not in functions_of(ROOT / path):
                yield f"{report}: there is no {path}::{name}"
    if without > MOST_WITHOUT:
        yield f"{without} reports have no test"


@pytest.fixture
def table() -> str:
    return (HERE / "README.md").read_text(encoding="utf-8")


def test_every_report_has_tests_that_exist(table: str) -> None:
    assert list(wrong(table)) == []
    assert len(rows(table)) == len({*rows(table)}) == REPORTS


def test_every_regression_test_is_in_the_table(table: str) -> None:
    named = {tuple(each) for _, said in rows(table) for each in TEST.findall(said)}
    files = [*HERE.glob("test_regression_*.py")]
    files += (ROOT / "tests/simdevice").glob("test_simdevice_regressions*.py")
    assert len(files) >= 10
    there = {(str(f.relative_to(ROOT)), name) for f in files for name in functions_of(f)}
    assert len(there) >= 50
    assert there - named == set()


def test_what_is_wrong_with_a_table_is_seen(table: str) -> None:
    name = "test_the_old_rule_diverges"
    assert name in table
    faulty = {
        table.replace(name, name + "_not"): "there is no tests/regressions",
        table.replace("test_regression_waits.py", "test_regression_wait.py"): "there is no tests/",
        table + "| x#1 | later |\n": "neither tests nor a reason: 'later'",
        table + "| x#1 | not applicable: no. |\n": "neither tests nor a reason",
        table + "| x#1 | not applicable: nothing here is like that at all. |\n" * 11: "11 reports",
    }
    for text, said in faulty.items():
        assert any(said in each for each in wrong(text)), said
