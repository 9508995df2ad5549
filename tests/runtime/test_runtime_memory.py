"""Host memory: how much there is is known before it is asked for, and loading a checkpoint takes no
more than the weights and one module.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import runtime
from runtime.memory import available, require
from schedule import OffloadError
from tests.runtime.checkpoints import N, on_meta, refused, save
from tests.runtime.models import stack

MEMINFO = "MemTotal:  2000 kB\nMemFree:  10 kB\nMemAvailable:  1000 kB\nHugePages_Total:  0\n"
GROUPS: dict[str, tuple[str, dict[str, str], int]] = {
    "none": ("", {}, 1000 * 1024),
    "version 2": (
        "0::/box",
        {"box/memory.max": "9000", "box/memory.current": "5000"},
        4000,
    ),
    "version 2, above": (
        "0::/box/inner",
        {
            "box/memory.max": "9000",
            "box/memory.current": "5000",
            "box/inner/memory.max": "max",
            "box/inner/memory.current": "1",
        },
        4000,
    ),
    "version 2, its files make way": (
        "0::/",
        {
            "memory.max": "9000",
            "memory.current": "5000",
            "memory.stat": "anon 7\ninactive_file 300\nactive_file 20\n",
        },
        4320,
    ),
    "version 1": (
        "9:cpu:/x\n4:memory:/box\n0::/",
        {
            "memory/box/memory.limit_in_bytes": "9000",
            "memory/box/memory.usage_in_bytes": "8000",
            "memory/box/memory.stat": "inactive_file 5\ntotal_inactive_file 100",
        },
        1100,
    ),
    "version 1, the host's path": (
        "4:cpu,memory:/host/box",
        {"memory/memory.limit_in_bytes": "9000", "memory/memory.usage_in_bytes": "8999"},
        1,
    ),
    "no limit": (
        "4:memory:/",
        {"memory/memory.limit_in_bytes": str(2**63 - 4096), "memory/memory.usage_in_bytes": "5"},
        1000 * 1024,
    ),
    "over the limit": ("0::/", {"memory.max": "10", "memory.current": "20"}, 0),
}


@pytest.mark.parametrize("name", GROUPS)
def test_what_is_available_is_the_least_that_anything_allows(name: str, tmp_path: Path) -> None:
    group, files, expected = GROUPS[name]
    files = {f"sys/fs/cgroup/{path}": text for path, text in files.items()}
    for path, text in (files | {"proc/meminfo": MEMINFO, "proc/self/cgroup": group}).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert available(tmp_path) == expected


def test_where_nothing_says_it_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", pages.__getitem__)
    assert available(tmp_path) == 3 * 4096
    monkeypatch.delattr("os.sysconf")
    assert available(tmp_path) is None
    monkeypatch.setattr("runtime.memory.available", lambda: None)
    require(1 << 60, "everything")


def test_this_machine_says_something() -> None:
    there = available()
    assert there is not None
    assert there > 1 << 20
    require(0, "nothing")
    with pytest.raises(OffloadError, match="bytes are missing"):
        require(1 << 60, "everything")


def test_more_than_there_is_names_the_bytes_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer has 2 * (256 + 32) bytes in a block of 4 * 256, and 256 for its number; there are
    five, and two slots; the rest is read to this CPU, too."""
    path, needed = save(stack(N), tmp_path / "a.safetensors"), (N + 2) * 1280 + 2 * 288 + 32
    monkeypatch.setattr("runtime.memory.available", lambda: needed - 7)
    refused(on_meta(), path, f"{needed} bytes are needed: .*, so 7 bytes are missing", slots=2)
    monkeypatch.setattr("runtime.memory.available", lambda: needed)
    runtime.load(on_meta(), path, slots=2).close()


LAYERS, WIDTH = 24, 1024
PEAK = f"""
import gc, json, sys
import torch, torch._dynamo
import runtime
from runtime.checkpoint import Stored
from runtime.memory import WORTH, return_freed
from tests.runtime.peaks import anonymous, layers, peak
torch.set_num_threads(1)

def most(action):
    gc.collect()
    return_freed(WORTH)  # what the one before left is no memory to be used again
    before = anonymous()
    found, offloaded = peak(action)
    offloaded.close()
    return found - before

def load(count=1, width=8, file="small"):
    with torch.device("meta"):
        model = layers(count, width)
    return runtime.load(model, sys.argv[1] + f"/{{file}}.safetensors", list(model), slots=1)

def large():
    return load({LAYERS}, {WIDTH}, "large")

def twin(read=Stored.read, kept=[]):
    Stored.read = lambda stored: kept.append(read(stored).clone()) or kept[-1]
    return large()

load().close()
print(json.dumps([most(large), most(twin)]))
"""


def test_loading_takes_no_more_than_the_weights_and_one_module(tmp_path: Path) -> None:
    """In a process of its own. The slot is beside the host blocks on a CPU. The twin reads
    the tensors into memory of its own first, and that is seen."""
    weights = {f"{i}.0.weight": torch.ones(WIDTH, WIDTH) for i in range(LAYERS)}
    weights |= {f"{i}.0.bias": torch.ones(WIDTH) for i in range(LAYERS)}
    save(weights, tmp_path / "large.safetensors")
    save(
        {"0.0.weight": torch.ones(8, 8), "0.0.bias": torch.ones(8)}, tmp_path / "small.safetensors"
    )
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    ours, twin = json.loads(found.stdout)
    module = 4 * WIDTH * (WIDTH + 1)
    allowed = (LAYERS + 1) * module + module  # the weights, the slot, and one module
    assert LAYERS * module < ours <= allowed
    assert twin > 2 * LAYERS * module
