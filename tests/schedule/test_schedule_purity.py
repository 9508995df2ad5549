"""``schedule`` needs Python's standard library alone: imported with all else blocked."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path

import schedule

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = '''
import importlib, json, pkgutil, sys

class Blocked(ImportError):
    pass

class Block:
    """Blocks every import but the standard library's and schedule's own; notes who asked."""
    asked = []

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top == "schedule" or top in sys.stdlib_module_names:
            return None
        frame = sys._getframe(1)
        while frame.f_globals["__name__"].startswith("importlib"):
            frame = frame.f_back
        self.asked.append((frame.f_globals["__name__"], name))
        raise Blocked(name)

def blocks(name):
    try:
        importlib.import_module(name)
    except Blocked:
        return True
    return False

before = set(sys.modules)
sys.meta_path.insert(0, Block())
import schedule
names = ["schedule"] + [m.name for m in pkgutil.walk_packages(schedule.__path__, "schedule.")]
for name in names:
    importlib.import_module(name)
asked = [pair for pair in Block.asked if pair[0].partition(".")[0] == "schedule"]
tops = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
print(json.dumps({
    "file": schedule.__file__,
    "names": names,
    "asked": asked,
    "foreign": [top for top in tops if top != "schedule" and top not in sys.stdlib_module_names],
    "safe": schedule.check(schedule.policies.balanced(schedule.Ring(7, 3))).safe,
    "blocks": [blocks(name) for name in sys.argv[1:]],
}))
'''


def test_every_module_imports_with_foreign_imports_blocked() -> None:
    """pytest, proofs and runtime are there to be imported, and are refused."""
    blocked = ["pytest", "hypothesis", "numpy", "torch", "z3", "proofs", "runtime"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *blocked],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["file"] == str(ROOT / "schedule" / "__init__.py")
    there = {path.stem for path in (ROOT / "schedule").glob("*.py")} - {"__init__"}
    assert set(said["names"]) == {"schedule"} | {f"schedule.{name}" for name in there}
    assert {"ring", "table", "policy", "machine", "verifier", "program", "errors"} <= there
    assert said["asked"] == []
    assert said["foreign"] == []
    assert said["safe"] is True
    assert said["blocks"] == [True] * len(blocked)


def test_the_example_in_the_package_is_right() -> None:
    result = doctest.testmod(schedule)
    assert (result.attempted, result.failed) == (2, 0)


def test_the_public_names_are_there() -> None:
    assert sorted(schedule.__all__) == schedule.__all__
    assert all(hasattr(schedule, name) for name in schedule.__all__)
    assert schedule.RINGPROOF == "ringproof"
