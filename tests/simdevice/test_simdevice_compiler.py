"""Where there is no compiler the device's tests are skipped, with the reason; or they fail, where
the device is required."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
SESSIONS = """
import os, pytest
arguments = ["-rsE", "tests/simdevice/test_simdevice_streams.py", "-k", "no_third"]
for _ in range(2):
    print("== session:", int(pytest.main([*arguments])), flush=True)
    os.environ["SIMDEVICE_REQUIRED"] = "1"
"""
"""Two sessions of one cheap test, in one process, since torch takes long to load: the second one
with the device required."""


def sessions(root: Path) -> list[str]:
    """What each session says, without a compiler: its exit status last."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("SIMDEVICE")}
    done = subprocess.run(
        [sys.executable, "-c", SESSIONS],
        cwd=root,
        env={**known, "CXX": str(root / "no-such-compiler"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, rest = done.stdout.split("== session: ")
    return [f"{first}{second[0]}", f"{second[1:]}{rest[0]}"]


def test_without_a_compiler_tests_are_skipped_and_a_required_device_fails(tmp_path: Path) -> None:
    """In a copy of this folder, where nothing was ever built."""
    shutil.copytree(HERE, tmp_path / "tests" / "simdevice")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    skipped, failed = sessions(tmp_path)
    assert skipped.endswith("0")
    assert "1 skipped" in skipped
    assert "no C++ compiler" in skipped
    assert "passed" not in skipped
    assert failed.endswith("1")
    assert "1 error" in failed
    assert "no C++ compiler" in failed
    assert not (tmp_path / "build").exists()
