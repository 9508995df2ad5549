"""What ``proofs`` says when it does not find Ringproof's ``schedule``, or no solver."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import proofs
from tests.proofs.kit import copy_of_the_code, python

REMEDY = "Remove it, or put Ringproof's directory before it on PYTHONPATH."
FOREIGN = {
    "schedule.py": "every = None\n",  # the name of a package in the index
    "schedule/__init__.py": "RINGPROOF = None\n",
}


@pytest.mark.parametrize("file", FOREIGN)
def test_a_foreign_schedule_is_named_with_the_remedy(file: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(FOREIGN[file])
    ours = tmp_path / "ours"
    ours.mkdir()
    copy_of_the_code(ours, "proofs")
    run = python("-c", "import proofs", first=tmp_path, then=ours)
    assert run.returncode == 1
    last = run.stderr.splitlines()[-1]
    assert last.startswith("ImportError: proofs needs Ringproof's package `schedule`, ")
    shown = str(tmp_path / file) if file.endswith(".py") else str(tmp_path / "schedule")
    assert shown in last
    assert last.endswith(REMEDY)


def test_the_remedy_works(tmp_path: Path) -> None:
    (tmp_path / "schedule.py").write_text("every = None\n")
    ours = tmp_path / "ours"
    ours.mkdir()
    copy_of_the_code(ours, "schedule", "proofs")
    run = python("-c", "import proofs; print(proofs.SOLVER)", first=ours, then=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == f"{proofs.SOLVER}\n"


def test_without_the_solver_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "z3.py").write_text("raise ImportError('none here')\n")
    run = python("-c", "import proofs", first=tmp_path)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == (
        "ImportError: proofs needs the solver Z3: pip install 'ringproof[proofs]', "
        "or pip install z3-solver"
    )


def test_the_solver_is_a_version() -> None:
    assert proofs.SOLVER.count(".") >= 2
    assert proofs.SOLVER.replace(".", "").isdigit()


def test_the_subprocesses_of_these_tests_see_this_python() -> None:
    run = python("-c", "import sys; print(sys.prefix)", first=Path(os.path.dirname(__file__)))
    assert (run.stdout, run.stderr) == (f"{sys.prefix}\n", "")
