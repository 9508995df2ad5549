"""Whether there is a C++ compiler, without which inductor compiles nothing for a CPU."""

from __future__ import annotations

import os
import shutil

import pytest


def has_compiler() -> bool:
    """Whether inductor would find one."""
    return any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++")))


COMPILER = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
