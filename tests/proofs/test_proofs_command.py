"""``python -m proofs policy`` on functions that lie outside the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.proofs.kit import python

POLICIES = """
def fixed(index, slots, modules):
    target = (index + slots) % modules
    if slots < modules and target % slots != index % slots:
        return index % slots
    return target

def old(index, slots, modules):
    return (index + slots) % modules

def sevens(index, slots, modules):
    if modules % 7 == 0 and slots == 5:
        return old(index, slots, modules)
    return fixed(index, slots, modules)

def beyond(index, slots, modules):
    if modules > 1000:
        return old(index, slots, modules)
    return fixed(index, slots, modules)

def floats(index, slots, modules):
    return fixed(index, slots, modules) / 1

def truth(index, slots, modules):
    return index > 3

def outside(index, slots, modules):
    return index + slots

def negative(index, slots, modules):
    return fixed(index, slots, modules) - 1

def two(index, slots):
    return index

def raises(index, slots, modules):
    return {3: 1}[modules]

def exits(index, slots, modules):
    raise SystemExit(0)

def endless(index, slots, modules):
    while True: pass

number = 7
"""

BLOCKED = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy", "runtime", "transformers", "hypothesis"):
            raise ImportError(f"blocked: {name}")

sys.meta_path.insert(0, NoTorch())
try:
    import torch
except ImportError as error:
    assert str(error) == "blocked: torch"
import importlib, pkgutil, proofs
OPTIONAL = ("proofs.strategies", "proofs.stateful", "proofs.needs_hypothesis")
for module in pkgutil.walk_packages(proofs.__path__, "proofs."):
    if not module.name.endswith("__main__") and not module.name.startswith(OPTIONAL):
        importlib.import_module(module.name)
from proofs.__main__ import main
code = main(["policy", "my_policies:old"])
assert "torch" not in sys.modules
sys.exit(code)
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory outside the repository, with the policies in it."""
    directory = tmp_path_factory.mktemp("outside")
    (directory / "my_policies.py").write_text(POLICIES)
    (directory / "broken.py").write_text("import no_such_module_of_mine\n")
    (directory / "blocked.py").write_text(BLOCKED)
    return directory


def policy(name: str, outside: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "proofs", "policy", name, first=outside)


def test_the_old_rule_is_violated_first_at_three_modules_and_two_slots(outside: Path) -> None:
    run = policy("my_policies:old", outside)
    assert (run.returncode, run.stderr) == (1, "")
    lines = run.stdout.splitlines()
    assert lines[0] == (
        "VIOLATED        my_policies:old: smallest N=3, K=2 "
        "(enumeration, smallest of the rings to 12x12)"
    )
    assert lines[1] == (
        "ownership  VIOLATED  pass 0, after module 1: refill of module 0 into slot 0 replaces "
        "module 2, which slot 0's next run reads; module 2 then reads module 0's weights"
    )
    identity = [line for line in lines if line.startswith("identity")]
    assert identity == [
        "identity   VIOLATED  pass 0: module 2 runs from slot 0, and reads module 0's weights"
    ]


def test_a_fault_at_few_sizes_is_found_at_the_smallest(outside: Path) -> None:
    run = policy("my_policies:sevens", outside)
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.startswith("VIOLATED        my_policies:sevens: smallest N=7, K=5 (")
    assert "ownership  VIOLATED  pass 0, after module 2: refill of module 0" in run.stdout


AT = "(index=0, slots=1, modules=1)"
UNUSABLE = [
    ("my_policies:floats", [AT, "a float; return an integer, or None"]),
    ("my_policies:truth", [AT, "False", "a bool; return an integer, or None"]),
    ("my_policies:outside", ["returned 1", AT, "which is no module; return 0 .. 0, or None"]),
    ("my_policies:negative", ["returned -1", AT, "which is no module; return 0 .. 0, or None"]),
    ("my_policies:two", ["can't be called with (index, slots, modules): too many"]),
    ("my_policies:raises", ["(0, 1, 1) raised KeyError: 1; "]),
    ("my_policies:exits", ["(0, 1, 1) raised SystemExit: 0; "]),
    ("my_policies:endless", ["(0, 1, 1) did not return within 1,000,000 instructions"]),
    ("my_policies:missing", ["my_policies was imported but has no 'missing'"]),
    ("my_policies:number", ["a policy is a function (index, slots, modules) -> target", "got 7"]),
    ("no_such_file:f", ["importing no_such_file failed with ModuleNotFoundError"]),
    ("broken:f", ["importing broken failed with ModuleNotFoundError: No module named"]),
    ("no_policy", ["no policy is called 'no_policy'; choose one of modular, slot_local, chain"]),
    (":f", ["':f' is not of the form pkg.module:function"]),
]


@pytest.mark.parametrize(("name", "parts"), UNUSABLE, ids=[name for name, _ in UNUSABLE])
def test_what_is_no_policy_is_bad_input(name: str, parts: list[str], outside: Path) -> None:
    run = policy(name, outside)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: ")
    assert run.stderr.count("\n") == 1
    for part in [name] * (name != "my_policies:number") + parts:
        assert part in run.stderr


def test_no_name_is_bad_input(outside: Path) -> None:
    run = python("-m", "proofs", "policy", first=outside)
    assert (run.returncode, run.stdout) == (2, "")
    assert "the following arguments are required: name" in run.stderr


def test_neither_torch_nor_anything_of_the_runtime_is_needed(outside: Path) -> None:
    run = python("blocked.py", first=outside)
    assert (run.returncode, run.stderr) == (1, "")
    assert run.stdout.startswith("VIOLATED        my_policies:old: smallest N=3, K=2 ")
