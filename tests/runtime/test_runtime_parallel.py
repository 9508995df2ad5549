"""Tensor parallel: two ranks that torchrun starts, with gloo, each with its own uneven part of
every layer. What they do is in ``ranks``, and in ``tensor_parallel`` the models.

Each rank moves its own part by itself. That no hook, no wrapping, no reload and no close takes part
in a collective is counted, by the group, and seen in that one rank may do any of them alone.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from schedule import Ring
from schedule.policy import NAMED
from tests.runtime.models import WIDTH, block_of, copies_in
from tests.runtime.ranks import PASSES, SAFE, SLOTS
from tests.runtime.tensor_parallel import INNER

LIMIT = 60
ROOT = Path(__file__).parents[2]
COMMAND = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
N = len(INNER)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank found."""
    folder = tmp_path_factory.mktemp("ranks")
    said = folder / "said.txt"  # no pipe: who outlives torchrun would hold it open
    command = [sys.executable, "-m", *COMMAND, "tests.runtime.ranks", str(folder)]
    with said.open("w") as out:
        torchrun = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=out, start_new_session=True
        )
        try:
            code: object = torchrun.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = f"not within {LIMIT} s"
        finally:
            if torchrun.poll() is None:  # the ranks then end by themselves, at their own limit
                os.killpg(torchrun.pid, signal.SIGKILL)
                torchrun.wait()
    assert code == 0, f"ended: {code}\n{said.read_text()}"
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def in_slot(inner: int) -> int:
    """Bytes of a slot that a layer takes which has so much of the width."""
    return block_of(4 * size for size in (inner * WIDTH, inner, WIDTH * inner, WIDTH))


@pytest.mark.parametrize("case", [*(f"{name} Layer" for name in SAFE), "chain Bare"])
def test_equal_bit_for_bit_with_the_copies_of_the_schedule(ranks: list[Any], case: str) -> None:
    """Against the same parallel model without offload, and with its collectives alone."""
    schedule = NAMED[case.split()[0]](Ring(N, SLOTS))
    for rank in ranks:
        found = rank["equal"][case]
        assert found["equal"]
        assert found["equal when closed"]
        assert (found["copies"], found["misses"]) == (copies_in(schedule, PASSES), 0)
        assert found["issued"] == found["needed"] == PASSES * N
        assert (found["wrapping"], found["closing"]) == (0, 0)


def test_each_rank_offloads_its_own_part_and_no_more(ranks: list[Any]) -> None:
    for larger, rank in (1, ranks[0]), (0, ranks[1]):
        parts = [inner // 2 + larger for inner in INNER]
        assert rank["where"]["parts"] == parts
        found = rank["equal"]["chain Layer"]
        weights = sum(4 * (2 * WIDTH * part + part + WIDTH) for part in parts)
        assert found["bytes_offloaded"] == found["bytes_pageable"] == weights
        assert found["bytes_slots"] == in_slot(parts[0]) + in_slot(parts[1])
        assert found["bytes_slots"] < weights
        assert found["bytes_copied"] == sum(
            (PASSES + (at < SLOTS)) * in_slot(part) for at, part in enumerate(parts)
        )


def test_the_old_rule_is_wrong_there(ranks: list[Any]) -> None:
    """What it reads are another layer's weights."""
    for rank in ranks:
        found = rank["modular"]
        assert found == {"equal": [False] * PASSES, "finite": [True] * PASSES, "copies": PASSES * N}


def test_a_part_lies_in_a_slot_in_its_layers_run_and_not_outside(ranks: list[Any]) -> None:
    for rank in ranks:
        found = rank["where"]
        assert found["inside"] == [0, 1, 0, 1, 0]
        assert found["before"] == found["after"] == [None] * N


def test_what_one_rank_alone_misses_it_reloads_alone(ranks: list[Any]) -> None:
    """A lost slot, and a weight that was written: (misses, copies, equal, more collectives)."""
    quiet, alone = ranks
    assert quiet["lost"]["rows"] == [[0, N, True, 0]] * 2
    assert alone["lost"]["rows"] == [[1, N + 1, True, 0]] * 2


def test_one_rank_raises_between_collectives_and_both_recover(ranks: list[Any]) -> None:
    """(equal, passes cut short, runs, misses.) Who retries misses if its slot was refilled by then,
    which it is not for a KeyboardInterrupt. A pass that was cut short left layers 3 and 4 in the
    slots, or 2, and the next one misses 0 and 1."""
    quiet, alone = (rank["raising"] for rank in ranks)
    for kind in "Failure", "KeyboardInterrupt":
        assert quiet[f"before {kind}"] == [True, 0, 4 * N, 0]
        assert alone[f"before {kind}"] == [True, 0, 4 * N + 1, int(kind == "Failure")]
        assert quiet[f"after {kind}"] == alone[f"after {kind}"] == [True, 1, 3 * N + 3, 2]


def test_one_rank_alone_may_wrap_refresh_load_and_close(ranks: list[Any]) -> None:
    """Both took part in the collectives of four rounds of two passes, and in no others; three of
    these rank 1 ran offloaded, and twice it loaded anew what was in the slots."""
    for copies, rank in (0, ranks[0]), (3 * 2 * N + 2 * SLOTS, ranks[1]):
        found = rank["alone"]
        assert found["equal"] == [True] * 4
        assert found["needed"] == 2 * N
        assert found["issued"] == 4 * 2 * N
        assert found["copies"] == copies


def test_the_sanitizer_looks_into_the_parts(ranks: list[Any]) -> None:
    for rank in ranks:
        found = rank["sanitized"]
        assert found["equal"] == [True, True]
        assert (found["copies"], found["misses"]) == (PASSES * N, 0)
        kept, read, wrong = found["errors"]
        assert re.match(r"something .* keeps layers\.0\.up\.weight", kept)
        assert re.match(
            r"aten\.sum\.default touches slot 0 through a weight of layers\.0, outside its run",
            read,
        )
        assert re.match(
            r"aten\.addmm\.default touches slot 0 through a weight of layers\.4, while the slot "
            r"holds layers\.0",
            wrong,
        )


def test_a_collective_that_still_reads_a_weight_is_an_error(ranks: list[Any]) -> None:
    """One that the layer waits for in its run is none; and afterwards all is right."""
    for rank in ranks:
        assert rank["equal"]["chain Gathering"]["equal"]
        assert rank["equal"]["chain Gathering"]["issued"] == 2 * PASSES * N
        (error,) = rank["gathering"]["errors"]
        assert re.match(r"something .* keeps layers\.3\.down\.bias, or a view of it, but", error)
        assert rank["gathering"]["equal"]
