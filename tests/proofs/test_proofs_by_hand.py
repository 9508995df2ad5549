"""The code, edited by hand in a copy: ``python -m proofs`` there is green no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs.claims import EXPECTED
from tests.proofs.kit import copy_of_the_code, edit, python

RAW = "if state.moving[slot] != EMPTY:\n                return Objection(RAW, slot)"

EDITS = {
    "no RAW guard": (
        "machine",
        RAW,
        RAW.replace("state.moving[slot] != EMPTY", "False"),
        [
            "UNKNOWN         claim 0 machine: ",
            "ModuleBegins allowed: the statement may fail (sat with seed ",
            "PROVED          claim 3 modular: ",
            "HOLDS_TO_BOUND  claim 10 agreement: ",
            "UNKNOWN         mutant 'no RAW guard' ",
            "stale: no RAW guard: ",
        ],
    ),
    "a plus to a minus in modular": (
        "arithmetic",
        '(PR #54975)."""\n    return (index + slots) % modules',
        '(PR #54975)."""\n    return (index - slots) % modules',
        [
            "UNKNOWN         claim 3 modular: ",
            "UNKNOWN         claim 6 closure: ",
            "VIOLATED        claim 10 agreement: ",
            "N=3, K=1, modular: ownership: ",
        ],
    ),
    "a derived target one too far": (
        "arithmetic",
        "return None if next_user == module else next_user",
        "return None if next_user == module else next_user - 1",
        [
            "UNKNOWN         claim 2 policies: ",
            "derived: step: ",
            "VIOLATED        claim 10 agreement: ",
            "N=2, K=1, chain: ",
        ],
    ),
}


ONLY = {
    "no RAW guard": (0, 3, 10),
    "a plus to a minus in modular": (3, 6, 10),
    "a derived target one too far": (2, 10),
}
"""The claims that are proved in the edited copy, to save time."""


def fewer_programs(folder: Path, bound: int) -> None:
    """Few schedules and programs are compared, and the mutants of claim 0 alone are tried, to save
    time; make prove does it all."""
    mutants = "if not only or numbers.intersection(only)]"
    edit(folder / "proofs" / "prove.py", mutants, "if numbers.intersection({0} & {*only})]")
    edit(folder / "proofs" / "agreement.py", "BOUND = 12", "BOUND = 4")
    all_of_them = "rings=8, faults=6, middle=4, small=3, solver=2"
    fewer = f"rings={bound}, faults={bound}, middle=4, small=2, solver=1"
    edit(folder / "proofs" / "cases.py", all_of_them, fewer)


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_copy_is_not_proved(name: str, tmp_path: Path) -> None:
    module, before, after, expected = EDITS[name]
    copy_of_the_code(tmp_path, "schedule", "proofs")
    edit(tmp_path / "schedule" / f"{module}.py", before, after)
    fewer_programs(tmp_path, 1)
    only = [f"--only={number}" for number in ONLY[name]]
    run = python("-m", "proofs", *only, first=tmp_path, then=tmp_path)
    last = run.stdout.splitlines()[-1]
    verdict = last.partition(":")[0]
    assert (verdict, run.returncode) in {("VIOLATED", 1), ("UNKNOWN", 3), ("DISAGREE", 6)}, (
        run.stderr
    )
    assert run.stderr == ""
    at = 0
    for text in expected:  # in this order
        assert text in run.stdout[at:], run.stdout
        at = run.stdout.index(text, at)


def test_the_code_as_it_is_is_proved(tmp_path: Path) -> None:
    """Of two claims; ``make prove`` is all of it."""
    copy_of_the_code(tmp_path, "schedule", "proofs")
    run = python("-m", "proofs", "--only=1", "--only=4", first=tmp_path, then=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    words = [line.split()[0] for line in lines if line[0] != " "]
    mutants = words.count("REFUTED")
    many = EXPECTED[1] + EXPECTED[4]
    assert lines[-1] == (
        f"PROVED: 2 claims, {many} obligations, {mutants} of {mutants} mutants refuted"
    )
    assert mutants > 5
    # No claim to a bound is among these, so there is nothing for the engines to agree on.
    gates = ["PROVED"] * 6 + ["NOT_ASKED", "PROVED:"]
    assert words == [*["PROVED"] * 2, *["REFUTED"] * mutants, *gates]
    assert [line.split(":")[0].split("gate ")[1] for line in lines if " gate " in line] == [
        *("count", "witnesses", "sizes", "mutants", "kills", "second solver", "engines")
    ]
