"""``python -m schedule audit``: what fits is 0, what does not is 1, what is no trace is 2."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from schedule import Ring, policies
from schedule.__main__ import main
from schedule.audit import audit, compare
from schedule.errors import ProgramError
from schedule.trace import Trace
from tests.schedule.test_lowering import everywhere
from tests.schedule.traces import loaded

CHAIN = policies.chain(Ring(3, 2))


def test_nothing_is_no_pass() -> None:
    with pytest.raises(ProgramError, match="line 2: the trace has no operations, so it shows"):
        audit(Trace("cpu", CHAIN, (0, 1)))


def saved(folder: Path, trace: Trace) -> str:
    path = folder / "trace.jsonl"
    trace.save(path)
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["audit", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_command_says_what_fits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = saved(tmp_path, loaded(CHAIN, 2))
    text = str(audit(loaded(CHAIN, 2)))
    asked = ("--modules", "3", "--slots", "2", "--policy", "chain")
    for options in ((), asked, asked[:2], asked[4:]):
        assert call(capsys, path, *options) == (0, text + "\n", "")
    code, out, _ = call(capsys, path, "--json")
    assert (code, json.loads(out)) == (0, audit(loaded(CHAIN, 2)).as_json())


def test_the_command_says_what_does_not_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = loaded(CHAIN, 1)
    del trace.issued[0]
    code, out, error = call(capsys, saved(tmp_path, trace))
    assert (code, error) == (1, "")
    assert out.splitlines()[1:4] == [
        "does not fit: line 2: [compute: run module 0 from slot 0] (module 0 begins)",
        "  program: the operations of [module 0 begins] are others, or are cut short",
        "  allowed there: [compute: wait for landed[0], the copy of module 0] (module 0 begins)",
    ]
    code, out, _ = call(capsys, saved(tmp_path, trace), "--json")
    assert (code, json.loads(out)["misfits"][0]["line"]) == (1, 2)
    unsafe = loaded(policies.modular(Ring(3, 2)), 1)
    unsafe.issued = unsafe.issued[:2]
    assert call(capsys, saved(tmp_path, unsafe))[0] == 1


def test_the_command_refuses_what_is_no_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = loaded(CHAIN, 1)
    path = tmp_path / "cut.jsonl"
    path.write_text("\n".join(list(trace.lines())[:-1]))
    code, out, error = call(capsys, str(path))
    assert (code, out) == (2, "")
    assert error.startswith("error: line 16: the trace is cut off")
    empty = saved(tmp_path, replace(trace, issued=[]))
    assert call(capsys, empty) == (
        2,
        "",
        "error: line 2: the trace has no operations, so it shows nothing\n",
    )
    code, _, error = call(capsys, str(tmp_path / "none"))
    assert code == 2
    assert "can't be read" in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--modules 4", "line 1: modules: 3, but 4 is asked for"),
        ("--slots 3 --policy chain", "line 1: slots: 2, but 3 is asked for"),
        (
            "--policy slot_local",
            "line 1: after[1]: [], but policy slot_local has [{'slot': 1, 'module': 1}]",
        ),
        ("--policy single_buffer", "line 1: slot_of[1]: 1, but policy single_buffer has 0"),
        ("--policy lost", "no policy is called 'lost'; choose one of"),
    ],
)
def test_a_trace_of_another_schedule_is_an_error_that_says_where(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: str, said: str
) -> None:
    code, out, error = call(capsys, saved(tmp_path, loaded(CHAIN, 1)), *options.split())
    assert (code, out) == (2, "")
    assert error.startswith(f"error: {said}")


def test_a_period_of_another_length_is_another_schedule() -> None:
    with pytest.raises(ProgramError, match=r"line 1: slot_of: 4 entries, but policy chain has 2"):
        compare(everywhere(), None, None, policies.chain)
    compare(policies.balanced(Ring(3, 2)), 3, 2, policies.balanced)
