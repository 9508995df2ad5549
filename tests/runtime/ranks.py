"""What each of two ranks sees of an offloaded tensor-parallel model, as JSON.

    python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.runtime.ranks FOLDER

Both run every function here, in this order; ``test_runtime_parallel`` looks at what they found.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import runtime
from runtime.unverified import offload_without_proof
from schedule import OffloadError, policies
from schedule.guard import Copied
from tests.runtime.models import Stack, after_run, batches, outputs, same
from tests.runtime.poison import POISON, poison
from tests.runtime.tensor_parallel import (
    Agreeing,
    Bare,
    Failure,
    Gathering,
    Layer,
    Retrying,
    collectives,
    counted,
    parallel,
)

LIMIT = 50
"""Seconds after which a rank that hangs says where it does, and ends."""
PATIENCE = 15
"""Seconds that a rank waits for the other one in a collective."""
SLOTS, PASSES = 2, 4
SAFE = tuple(name for name in policies.NAMED if name != "modular")
Found = dict[str, Any]


def chained(model: Stack) -> runtime.Offloaded:
    return runtime.offload(model, list(model.layers), slots=SLOTS, policy="chain")


def unproved(model: Stack) -> runtime.Offloaded:
    return offload_without_proof(
        model, list(model.layers), slots=SLOTS, policy="modular", output_may_be_wrong=True
    )


def equal() -> Found:
    """By policy, and for layers with collectives of their own."""
    found = {}
    for policy, layer in [(name, Layer) for name in SAFE] + [("chain", Bare), ("chain", Gathering)]:
        wanted, needed = counted(parallel(layer), batches(PASSES))
        model = parallel(layer)
        start = collectives()
        offloaded = runtime.offload(model, list(model.layers), slots=SLOTS, policy=policy)
        wrapping = collectives() - start
        given, issued = counted(model, batches(PASSES))
        start = collectives()
        offloaded.close()
        found[f"{policy} {layer.__name__}"] = asdict(offloaded.report()) | {
            "equal": same(given, wanted),
            "closing": collectives() - start,
            "equal when closed": same(outputs(model, batches(PASSES)), wanted),
            "wrapping": wrapping,
            "issued": issued,
            "needed": needed,
        }
    return found


def modular() -> Found:
    wanted, model = outputs(parallel(), batches(PASSES)), parallel()
    with unproved(model) as offloaded:
        given = outputs(model, batches(PASSES))
        return {
            "equal": [torch.equal(a, b) for a, b in zip(given, wanted, strict=True)],
            "finite": [bool(one.isfinite().all()) for one in given],
            "copies": offloaded.report().copies,
        }


def where() -> Found:
    """In which slot each layer's part begins, before the pass, in the layer's run, and after."""
    model, inside = parallel(), list[int | None]()
    layers = list(model.layers)
    parts = [layer.up.weight.to_local().shape[0] for layer in layers]
    with chained(model) as offloaded:
        slots = [(one.data_ptr(), one.data_ptr() + one.numel()) for one in offloaded.arena.slots]

        def slot_of(layer: nn.Module) -> int | None:
            at = {parameter.to_local().data_ptr() for parameter in layer.parameters()}
            found = {
                next((n for n, (a, b) in enumerate(slots) if a <= one < b), None) for one in at
            }
            assert len(at) == 4
            assert len(found) == 1
            return found.pop()

        for layer in layers:
            after_run(layer.down, lambda layer=layer: inside.append(slot_of(layer)))
        before = [*map(slot_of, layers)]
        outputs(model, batches(1))
        return {
            "parts": parts,
            "before": before,
            "inside": inside,
            "after": [*map(slot_of, layers)],
        }


def lost() -> Found:
    """Rank 1 alone loses what slot 1 holds; then it alone writes into a weight."""
    model, plain, rows = parallel(), parallel(), []
    with chained(model) as offloaded:
        outputs(model, batches(1))

        def lose() -> None:
            offloaded.arena.slots[1].fill_(POISON)
            offloaded._interpreter.last[1] = Copied()

        def write() -> None:
            for each in model, plain:
                each.layers[0].down.weight.to_local().mul_(2)

        for change in lose, write:
            before = offloaded.report()
            if distributed.get_rank() == 1:
                change()
            wanted, needed = counted(plain, batches(1))
            given, issued = counted(model, batches(1))
            now = offloaded.report()
            rows.append([now.misses - before.misses, now.copies - before.copies])
            rows[-1] += [same(given, wanted), issued - needed]
    return {"rows": rows}


def raising() -> Found:
    """Rank 1 alone raises in layer 2: before its collective, and runs the layer again while rank 0
    waits; or after it, and both end the pass."""
    rows, kinds = {}, (Failure, KeyboardInterrupt)
    for when, stack, kind in [("before", Retrying, k) for k in kinds] + [
        ("after", Agreeing, k) for k in kinds
    ]:
        wanted, model, cut = outputs(parallel(model=stack), batches(3)), parallel(model=stack), 0
        with chained(model) as offloaded:
            given = outputs(model, batches(3)[:1])
            model.layers[2].raises = (when, kind) if distributed.get_rank() == 1 else None
            try:
                outputs(model, batches(1))
            except Failure:
                cut = 1
            given += outputs(model, batches(3)[1:])
            report = offloaded.report()
        rows[f"{when} {kind.__name__}"] = [same(given, wanted), cut, report.runs, report.misses]
    return rows


def alone() -> Found:
    """Rank 1 alone wraps, refreshes, loads and closes: a collective would wait for a partner, or
    take one of the next pass for it."""
    model, plain = parallel(), parallel()
    wanted, needed = counted(plain, batches(2))
    saved = {name: one.clone() for name, one in plain.state_dict().items()}
    steps: list[Callable[[], object]] = [lambda: None] * 4
    start, copies = collectives(), 0
    if distributed.get_rank() == 1:
        offloaded = chained(model)
        steps = [*steps[:1], offloaded.refresh, lambda: model.load_state_dict(saved)]
        steps.append(offloaded.close)
    right = []
    for step in steps:
        step()
        right.append(same(outputs(model, batches(2)), wanted))
        copies = offloaded.report().copies if distributed.get_rank() == 1 else 0
    return {
        "equal": right,
        "issued": collectives() - start,
        "needed": needed,
        "copies": copies,
    }


def sanitized() -> Found:
    """Passes that are right; then a part that is read when its layer's run is over, and the old
    rule."""
    model, wanted, errors = parallel(), outputs(parallel(), batches(PASSES)), list[str]()
    with chained(model) as offloaded, runtime.sanitize(offloaded):
        right = same(outputs(model, batches(PASSES)), wanted)
        report, kept = offloaded.report(), list[Any]()
        handle = after_run(model.layers[0].down, lambda: kept.append(model.layers[0].up.weight))
        with _error_in(errors):
            outputs(model, batches(1))
        handle.remove()
        with _error_in(errors):
            kept.pop().to_local().sum()
        again = same(outputs(model, batches(PASSES)), wanted)
    with unproved(model) as wrong, runtime.sanitize(wrong), _error_in(errors):
        outputs(model, batches(1))
    return {
        "equal": [right, again],
        "copies": report.copies,
        "misses": report.misses,
        "errors": errors,
    }


def gathering() -> Found:
    """A collective that a layer does not wait for still reads its weight when its run is over."""
    model, wanted, errors = parallel(Gathering), outputs(parallel(Gathering), batches(2)), []
    with chained(model):
        model.layers[3].waits = False
        with _error_in(errors):
            outputs(model, batches(1))
        model.layers[3].waits = True
        torch.ops._c10d_functional.wait_tensor(Gathering.left.pop())
        return {"equal": same(outputs(model, batches(2)), wanted), "errors": errors}


@contextmanager
def _error_in(errors: list[str]) -> Iterator[None]:
    try:
        yield
    except OffloadError as error:
        errors.append(str(error))


def main(folder: Path) -> None:
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    found = {}
    for one in equal, modular, where, lost, raising, alone, sanitized, gathering:
        with nullcontext() if one is modular else poison():  # there it is to read another's weights
            found[one.__name__] = one()
    file = folder / f"{distributed.get_rank()}.json"
    file.write_text(json.dumps(found), encoding="ascii")
    # Not by the interpreter's end, where torch's threads were seen to abort the process: all that
    # it had to say is in the file.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
