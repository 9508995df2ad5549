"""What the runtime says when its surroundings are wrong, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import runtime

ROOT = Path(runtime.__file__).parents[1]


def run(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, isolated from this one's surroundings."""
    code = f"import sys; sys.path[:0] = {[str(p) for p in path]!r}\n{code}"
    return subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)


def test_a_foreign_package_called_schedule_is_named(tmp_path: Path) -> None:
    """Several exist in the index."""
    foreign = tmp_path / "schedule.py"
    foreign.write_text("def every(*_): ...\n")
    done = run("import runtime", tmp_path, ROOT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: runtime needs Ringproof's package `schedule`, but another one comes first on "
        f"the path: {str(foreign)!r}. Remove it, or put Ringproof's directory before it on "
        "PYTHONPATH."
    )


SHADOWED = f"""
import importlib.util
spec = importlib.util.spec_from_file_location(
    "runtime", {str(ROOT / "runtime" / "__init__.py")!r}, submodule_search_locations=[
        {str(ROOT / "runtime")!r}])
module = importlib.util.module_from_spec(spec)
sys.modules["runtime"] = module
spec.loader.exec_module(module)
"""


def test_ours_after_a_foreign_one_elsewhere_is_fine(tmp_path: Path) -> None:
    (tmp_path / "schedule.py").write_text("")
    done = run("import runtime; print(runtime.TORCH)", ROOT, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, runtime.TORCH)


def test_without_torch_the_remedy_is_said() -> None:
    done = run("sys.modules['torch'] = None\nimport runtime", ROOT)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: runtime needs PyTorch 2.9 or newer: pip install 'ringproof[runtime]' "
        "(with -c constraints/cpu.txt for the small CPU build)"
    )


def test_a_foreign_schedule_is_said_before_torch_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "schedule.py").write_text("")
    done = run("sys.modules['torch'] = None\nimport runtime", tmp_path, ROOT)
    assert "another one comes first" in done.stderr
    assert "PyTorch" not in done.stderr
