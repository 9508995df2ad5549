"""Both command lines where standard output has no reader, or can't show every letter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schedule.output import CLOSED

ROOT = Path(__file__).parent.parent
COMMANDS = {
    "short": ["schedule", "policies"],
    "long": ["schedule", "show", "--modules", "300", "--slots", "7", "--policy", "chain"],
    "help": ["schedule", "--help"],
    "proofs": ["proofs", "--list"],
}


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", **more}


@pytest.mark.parametrize(
    ("name", "unbuffered"), [*((name, "") for name in COMMANDS), ("short", "1"), ("long", "1")]
)
def test_without_a_reader_it_ends_quietly(name: str, unbuffered: str) -> None:
    """The reader is gone before anything is printed, be it little or more than a pipe holds, and
    printed at once or at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-W", "error", "-m", *COMMANDS[name]]
    try:
        found = subprocess.run(
            command,
            stdout=writer,
            stderr=subprocess.PIPE,
            env=environment(PYTHONUNBUFFERED=unbuffered),
            text=True,
        )
    finally:
        os.close(writer)
    assert (found.returncode, found.stderr) == (CLOSED, "")
    assert CLOSED == 141  # what a shell says of a program that SIGPIPE ended


@pytest.mark.parametrize(
    ("package", "arguments", "code", "said"),
    [
        ("schedule", ["check", "--modules", "3", "--slots", "2", "--policy"], 1, "VIOLATED\n"),
        ("proofs", ["policy"], 1, "smallest N=3, K=2 ("),
    ],
)
def test_letters_that_can_not_be_shown_are_escaped(
    tmp_path: Path, package: str, arguments: list[str], code: int, said: str
) -> None:
    source = "def \u00e4lter(index, slots, modules): return (index + slots) % modules\n"
    (tmp_path / "rules.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", package, *arguments, "rules:\u00e4lter"]
    for encoding, name in (("ascii", "\\xe4lter"), ("utf-8", "\u00e4lter")):
        found = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment(PYTHONIOENCODING=encoding),
            capture_output=True,
            text=True,
            encoding=encoding,
        )
        assert (found.returncode, found.stderr) == (code, "")
        assert f"rules:{name}" in found.stdout.splitlines()[0]
        assert said in found.stdout
