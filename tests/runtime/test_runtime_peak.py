"""Wrapping a model, and closing it, take no more than weights, one module and slots."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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


FROM_PRETRAINED = f"""
import json
import sys
import torch
import transformers
import runtime
from tests.runtime.peaks import anonymous, peak
torch.set_num_threads(1)
small, large = sys.argv[1:]

def wrap(folder, change=lambda model: None):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    change(model)
    return runtime.offload(model, slots={SLOTS})

def copied(model):
    kept.extend(parameter.data.clone() for parameter in model.parameters())
    for parameter, own in zip(model.parameters(), kept, strict=True):
        parameter.data = own

wrap(small).close()
before, kept = anonymous(), []
while_wrapping, offloaded = peak(lambda: wrap(large))
layer = offloaded.selection.modules[0]
found = [sum(p.nbytes for p in layer.parameters()), while_wrapping - before]
offloaded.close()
del offloaded, layer
before = anonymous()
while_wrapping, offloaded = peak(lambda: wrap(large, copied))
print(json.dumps([*found, while_wrapping - before]))
"""


def test_a_model_of_transformers_is_never_there_twice(tmp_path: Path) -> None:
    """Its own loader maps the files; then it goes module by module. The twin reads the files into
    memory first, and keeps that."""
    transformers = pytest.importorskip("transformers")
    folders = []
    for width, layers in (8, 3), (480, LAYERS):
        config = transformers.LlamaConfig(
            hidden_size=width,
            intermediate_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            vocab_size=32,
        )
        folders.append(str(tmp_path / str(width)))
        transformers.LlamaForCausalLM(config).save_pretrained(folders[-1])
    command = [sys.executable, "-c", FROM_PRETRAINED, *folders]
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    module, wrapping, twin = json.loads(found.stdout)
    weights = LAYERS * module
    assert weights < wrapping <= weights + (SLOTS + 1) * module + CONSTANT
    assert twin > 1.8 * weights
