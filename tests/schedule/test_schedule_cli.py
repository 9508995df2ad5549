"""The command line: exit codes, what is printed, JSON, and what bad input gets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schedule import Ring, check, policies
from schedule.__main__ import main
from schedule.drawing import draw
from schedule.timeline import WIDTH, show

ROOT = Path(__file__).parent.parent.parent


def sized(modules: int, slots: int) -> list[str]:
    return ["--modules", str(modules), "--slots", str(slots)]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out, _ = call(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_the_old_rule_is_named_with_victim_slot_and_refill(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(capsys, "check", *sized(3, 2), "--policy", "modular")
    assert code == 1
    assert "after module 1: refill of module 0 into slot 0 replaces module 2" in out


def test_as_a_process_it_needs_no_package() -> None:
    command = [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); "]
    command[-1] += "from schedule.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command += [str(ROOT), "check", *sized(3, 2), "--policy", "modular"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.startswith("modular, 3 modules, 2 slots: VIOLATED\n")


def test_slot_local_holds_with_a_lint(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "check", *sized(3, 2), "--policy", "slot_local")
    assert code == 0
    lint = "after module 1: refill of module 1 into slot 1: slot 1 already holds module 1"
    assert [line for line in out.splitlines() if "lint" in line] == [f"thrift     lint      {lint}"]


@pytest.mark.parametrize("policy", ["chain", "balanced"])
def test_derived_refills_hold_without_lint(capsys: pytest.CaptureFixture[str], policy: str) -> None:
    code, out, _ = call(capsys, "check", *sized(3, 2), "--policy", policy)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["holds"] * 8


def test_long_lints_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "check", *sized(10, 9), "--policy", "slot_local")
    assert out.count("already holds") == 5
    assert "and 3 more" in out


def test_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = as_json(capsys, "check", *sized(3, 2), "--policy", "modular")
    assert code == 1
    assert (found["policy"], found["verdict"], found["copies"]) == ("modular", "VIOLATED", 3)
    first = found["violations"][0]
    assert (first["property"], first["slot"], first["needs"], first["has"]) == (
        "ownership",
        0,
        2,
        0,
    )
    assert first["trace"][first["replaced"]] == {"half": "after", "step": 1, "slot": 0, "module": 0}
    assert first["trace"][first["run"]] == {"half": "run", "step": 2, "slot": 0, "module": 2}


def test_show_marks_the_overwrite_and_the_wrong_read(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "show", *sized(3, 2), "--policy", "modular")
    assert code == 1
    lines = out.splitlines()
    heads = lines[2].split("  ")
    assert "after 1" in [head.strip() for head in heads]
    slot0 = next(line for line in lines if line.startswith("slot 0")).split()
    assert slot0[2:] == [">0", "[0]", ">2", "2", ">0!", "[0]!", "0"]


def test_show_fits_its_width_and_loses_no_column() -> None:
    text = show(draw(check(policies.balanced(Ring(40, 7))), 2))
    assert max(map(len, text.splitlines())) <= WIDTH
    runs = [int(found) for found in re.findall(r"run (\d+)", text)]
    assert runs == [*range(40), *range(40)]


def test_show_as_json_holds_the_whole_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = as_json(capsys, "show", *sized(5, 2), "--policy", "chain")
    assert code == 0
    assert found["schedule"]["slot_of"] == [0, 1, 0, 1, 0]
    after = found["schedule"]["after"]
    assert [[refill["module"] for refill in step] for step in after] == [[2], [3], [4], [1], [0]]
    assert found["schedule"]["preload"] == [{"slot": 0, "module": 0}, {"slot": 1, "module": 1}]


def test_diff_shows_exactly_where_two_policies_differ(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "diff", *sized(5, 2), "modular", "slot_local")
    assert code == 0
    assert out.splitlines() == [
        "modular: VIOLATED, 5 copies a pass, 1 of them useless, smallest window 1",
        "slot_local: VERIFIED, 5 copies a pass, 0 of them useless, smallest window 0",
        "after[3]: module 0 into slot 0 | module 1 into slot 1",
        "after[4]: module 1 into slot 1 | module 0 into slot 0",
        "window[0]: none | 0 runs",
        "window[1]: 1 run | 2 runs",
        "window[4]: none | 1 run",
    ]


def test_diff_of_equal_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the same schedule" in call(capsys, "diff", *sized(4, 2), "modular", "slot_local")[1]
    code, found = as_json(capsys, "diff", *sized(4, 2), "modular", "slot_local")
    assert (code, found["differences"]) == (0, [])


def test_policies_with_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = as_json(capsys, "policies", *sized(30, 4))
    assert code == 0
    assert {row["name"]: (row["verdict"], row["copies"]) for row in found} == {
        "modular": ("VIOLATED", 30),
        "slot_local": ("VERIFIED", 30),
        "chain": ("VERIFIED", 30),
        "balanced": ("VERIFIED", 30),
        "double_buffer": ("VERIFIED", 28),
        "single_buffer": ("VERIFIED", 27),
        "rotating": ("VERIFIED", 30),
        "restart": ("VERIFIED", 30),
        "one_ahead": ("VERIFIED", 30),
        "on_demand": ("VERIFIED", 30),
    }


def test_policies_without_sizes_and_where_one_does_not_apply(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(call(capsys, "policies")[1].splitlines()) == 10
    lines = call(capsys, "policies", *sized(3, 1))[1].splitlines()
    names = [line.split()[0] for line in lines if "needs more slots" in line]
    assert names == ["double_buffer", "one_ahead"]


def test_a_period_that_is_too_long_is_one_row_of_the_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(capsys, "policies", *sized(1500, 1499))
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if "too long a period" in line] == [
        "rotating"
    ]
    rows = json.loads(call(capsys, "policies", *sized(1500, 1499), "--json")[1])
    assert ["a period of 1499 passes" in row.get("refused", "") for row in rows].count(True) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", *sized(0, 2), "--policy", "chain"], "modules must be at least 1, got 0"),
        (["check", *sized(3, -1), "--policy", "chain"], "slots must be at least 1, got -1"),
        (["check", *sized(3, 2), "--policy", "nope"], "choose one of modular, slot_local"),
        (["check", *sized(3, 2), "--policy", "no_such.module:f"], "importing no_such.module"),
        (["check", *sized(3, 2), "--policy", "json:nope"], "has no 'nope'"),
        (["check", *sized(3, 1), "--policy", "double_buffer"], "at least 2 slots, got 1"),
        (["show", *sized(3, 2), "--policy", "chain", "--passes", "0"], "at least 1, got 0"),
        (["policies", "--modules", "3"], "give both --modules and --slots"),
        (["diff", *sized(3, 2), "chain", "nope"], "no policy is called 'nope'"),
    ],
)
def test_bad_input_is_said_on_stderr(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("arguments", [[], ["check"], ["check", "--modules", "x"], ["bogus"]])
def test_bad_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(arguments)
    assert exit_code.value.code == 2


def test_a_schedule_without_a_graph_of_one_pass_is_not_said_to_be_joined(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(capsys, "check", *sized(3, 2), "--policy", "rotating")
    assert code == 0
    assert "joined     no graph: it repeats after 2 passes, so one pass is none\n" in out
    assert "joined     holds" not in out
    assert "joined     holds\n" in call(capsys, "check", *sized(3, 2), "--policy", "chain")[1]
    _, found = as_json(capsys, "check", *sized(3, 2), "--policy", "rotating")
    assert found["streams"] == {"ordering": None, "meaning": None}
