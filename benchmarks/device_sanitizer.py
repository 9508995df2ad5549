"""A pass under torch's CUDA sanitizer, which must be there before CUDA is: so in a process of its
own, ``python -m benchmarks.device_sanitizer``.

The sanitizer knows memory by where a tensor begins. A refill begins where its slot does, and there
lies the module's number: so each run also reads that, right before its weights.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import nn

import runtime
from runtime.device import AcceleratorStreams

ROOT = Path(__file__).parents[1]
VARIABLE = "TORCH_CUDA_SANITIZER"
LIMIT, LEAST = 120.0, 20.0
"""Seconds that it is given: at most, and even if less time is left."""
WIDTH, MODULES, SLOTS = 1024, 5, 2
ORDERS = (range(MODULES), range(MODULES), (0, 2, 3, 4), range(MODULES))
SEEN, MISSED = "sees that fences are missing", "does NOT see that fences are missing"


def sanitized(left: float) -> tuple[bool, str]:
    """Whether all is well, and what was found. left: seconds that it may take, about."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.device_sanitizer"],
            cwd=ROOT,
            env=os.environ | {VARIABLE: "1"},
            capture_output=True,
            text=True,
            timeout=min(LIMIT, max(LEAST, left)),
        )
    except subprocess.TimeoutExpired as error:
        return False, f"not done after {error.timeout:.0f} s"
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return done.returncode == 0, said[-1] if said else f"exit code {done.returncode}"


def main() -> int:
    """0 if the sanitizer finds nothing in an offloaded model, whose output is right, and finds that
    its fences are missing where they are."""
    from torch.cuda._sanitizer import CUDASanitizerErrors

    device = torch.device("cuda", torch.cuda.current_device())
    with torch.no_grad():
        equal = is_right(device)
        try:
            with patch.object(AcceleratorStreams, "fence", lambda *_: lambda: None):
                is_right(device)
        except CUDASanitizerErrors:
            seen = SEEN
        else:
            seen = MISSED
    print(f"{'no race, bit for bit' if equal else 'WRONG'}; it {seen}, where they are")
    return 0 if equal and seen == SEEN else 1


def is_right(device: torch.device) -> bool:
    """Passes in order, one of them without a module, are those of the model on the device."""
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(MODULES))
    layers.requires_grad_(False)
    inputs = torch.ones(2, WIDTH, device=device)
    with runtime.offload(list(layers), slots=SLOTS, device=device) as offloaded:
        for index, layer in enumerate(layers):
            slot = offloaded.arena.slots[offloaded.schedule.slot_of[index]]
            layer.register_forward_pre_hook(partial(_read, slot))
        given = _outputs(layers, inputs)
    layers.to(device)
    return all(map(torch.equal, given, _outputs(layers, inputs)))


def _read(slot: torch.Tensor, *_: object) -> None:
    slot[:1].clone()


def _outputs(layers: nn.ModuleList, inputs: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for order in ORDERS:
        x = inputs
        for index in order:
            x = torch.tanh(layers[index](x))
        found.append(x)
    return [x.cpu() for x in found]  # not before: the host runs ahead


if __name__ == "__main__":
    sys.exit(main())
