"""The campaign of docs/fuzzing.md, as it is written there: what one process finds another one, on
the same database, tries first."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRINTED = re.compile(r"^tried (\d+) (\d+)$", re.MULTILINE)

OLD = "def fixed(index, slots, modules): return (index + slots) % modules\n"
FIXED = """def fixed(index, slots, modules):
    return index + slots if index + slots < modules else index % slots
"""


def block(language: str, start: str) -> str:
    text = (ROOT / "docs" / "fuzzing.md").read_text(encoding="ascii")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (found,) = [one for one in blocks if one.startswith(start)]
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The two files of the page; rounds are short, and the property prints what it tries."""
    profile = block("python", "# conftest.py\n")
    assert "max_examples=10_000," in profile
    profile = profile.replace("max_examples=10_000,", "max_examples=100,")
    (tmp_path / "conftest.py").write_text(profile)
    test = block("python", "# test_campaign.py\n")
    assert "    verify(" in test
    test = test.replace("    verify(", '    print("tried", modules, slots)\n    verify(')
    (tmp_path / "test_campaign.py").write_text(test)
    return tmp_path


def one_round(folder: Path, rule: str) -> tuple[int, list[tuple[int, int]]]:
    """The exit code of one round of the page's command, in a process of its own; and the rings that
    it tried."""
    (folder / "rules.py").write_text(rule)
    command = re.fullmatch(r"while python (.*); do :; done\n", block("sh", "while "))
    assert command is not None
    # Plain asserts: pytest would else rewrite all of Hypothesis first, which takes longest.
    run = subprocess.run(
        [sys.executable, *shlex.split(command[1]), "-s", "--assert=plain"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    return run.returncode, [(int(n), int(k)) for n, k in PRINTED.findall(run.stdout)]


def test_what_one_process_finds_another_one_tries_first(folder: Path) -> None:
    code, tried = one_round(folder, OLD)
    assert code == 1
    assert tried[0] == (1, 1)  # nothing is saved: Hypothesis begins with the simplest
    assert tried[-1] == (3, 2)  # shrunk, and saved
    code, tried = one_round(folder, OLD)
    assert (code, tried[0]) == (1, (3, 2))
    code, tried = one_round(folder, FIXED)  # mended: tried once more, and then new ones
    assert (code, tried[0], len(tried) > 50) == (0, (3, 2), True)
