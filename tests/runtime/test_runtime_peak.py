"""Wrapping a model, and closing it, take no more than weights, one module and slots."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAYERS, WIDTH, SLOTS = 20, 1142, 2
MODULE = 4 * WIDTH * (WIDTH + 1)
CONSTANT = 1 << 20
PEAK = f"""
import json
import torch
import runtime
from runtime.arena import Arena
from tests.runtime.peaks import anonymous, layers, peak
torch.set_num_threads(1)

def wrap(model):
    return runtime.offload(model, list(model), slots={SLOTS})

wrap(layers(3, 8)).close()
before = anonymous()
model = layers({LAYERS}, {WIDTH})
found = [anonymous() - before]
for _ in range(2):
    while_wrapping, offloaded = peak(lambda: wrap(model))
    while_closing, _ = peak(offloaded.close)
    del offloaded
    found += [while_wrapping - before, while_closing - before, anonymous() - before]
kept = []
adopt, release = Arena.adopt, Arena.release

def keeping(arena, module, block, source):
    kept.extend(leaf.data for leaf, _ in arena.layouts[module].leaves)
    adopt(arena, module, block, source)

Arena.adopt = keeping
while_wrapping, offloaded = peak(lambda: wrap(model))
kept.clear()
Arena.release = lambda arena, give_back: (kept.extend(arena.blocks), release(arena, give_back))
while_closing, _ = peak(offloaded.close)
print(json.dumps([found, [while_wrapping - before, while_closing - before]]))
"""


def test_wrapping_and_closing_take_one_module_beside_the_weights() -> None:
    """In a process of its own; the slots are in host memory on a CPU. The twins keep what was
    there before until the end: the tensors while wrapping, the blocks while closing. In the second
    round the tensors come from the C library's heap."""
    command = [sys.executable, "-c", PEAK]
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    (plain, *rounds), twins = json.loads(found.stdout)
    weights = LAYERS * MODULE
    assert weights <= plain <= weights + CONSTANT
    for wrapping, closing, after in (rounds[:3], rounds[3:]):
        assert weights < wrapping <= weights + (SLOTS + 1) * MODULE + CONSTANT
        assert weights < closing <= weights + (SLOTS + 1) * MODULE + CONSTANT
        assert after <= weights + CONSTANT
    assert all(twin > 1.8 * weights for twin in twins)
