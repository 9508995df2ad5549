"""``python -m benchmarks device`` says what is wrong, what does not fit and what is not there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import runtime
from benchmarks import device, device_calibration, device_memory, device_right, schemes
from benchmarks.__main__ import main
from benchmarks.device_baselines import baselines
from benchmarks.device_calibration import calibration
from benchmarks.device_claims import claims
from benchmarks.device_measure import Arm, Whole, row_of
from benchmarks.device_models import TINY
from benchmarks.device_passes import decode
from benchmarks.device_right import SAFE, right
from benchmarks.device_rows import Row
from benchmarks.device_sanitizer import is_right, sanitized
from benchmarks.device_sizes import TINY_SIZES, Bench
from runtime import memory
from runtime.unverified import offload_without_proof
from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE

Part = Callable[[Bench], Iterator[Row]]


@pytest.fixture
def bench(sim: SimDevice) -> Bench:
    del sim
    return Bench(torch.device(DEVICE), True, TINY_SIZES, float("inf"), peak=1e9)


def rows_of(part: Part, bench: Bench) -> dict[str, Row]:
    return {row.what: row for row in part(bench)}


def test_a_part_that_fails_costs_no_other_its_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(_: Bench) -> Iterator[Row]:
        yield Row("first", "a row")
        raise RuntimeError("no more memory\nand a long story")

    def good(_: Bench) -> Iterator[Row]:
        yield Row("second", "another row")

    monkeypatch.setattr(device, "PARTS", {"first": fails, "second": good})
    file = tmp_path / "figures.json"
    assert main(["device", "--tiny", "--json", str(file)]) == 1
    rows = json.loads(file.read_text(encoding="ascii"))["lines"][1:]
    assert [(row["part"], row["what"], row["failed"], row["note"]) for row in rows] == [
        ("first", "a row", False, ""),
        ("first", "", True, "RuntimeError: no more memory"),
        ("second", "another row", False, ""),
    ]
    assert "FAILED; RuntimeError: no more memory" in capsys.readouterr().out


def test_what_no_time_is_left_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def long(bench: Bench) -> Iterator[Row]:
        try:
            yield Row("long", "a row")
            yield Row("long", "one more")
        finally:
            closed.append(bench.left)

    clock = iter([0.0, 1.0, 11.0, 12.0, 13.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr(device, "PARTS", {"long": long, "other": long})
    _, *rows = device.lines(tiny=True, seconds=10)
    said = "left out, or what is left of it: the 10 s are spent"
    assert [(row.part, row.what, row.note) for row in rows if isinstance(row, Row)] == [
        ("long", "a row", ""),
        ("long", "", said),
        ("other", "", said),
    ]
    assert closed == [-2.0]


def test_an_unsafe_policy_is_not_right(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: in place of each proved one runs the one that was refuted, guarded by nothing."""

    def unsafe(*arguments: Any, policy: str = "", **named: Any) -> runtime.Offloaded:
        del policy
        return offload_without_proof(
            *arguments, policy="modular", output_may_be_wrong=True, **named
        )

    monkeypatch.setattr(device_right.runtime, "offload", unsafe)
    rows = rows_of(right, bench)
    for name in SAFE:
        assert rows[name].failed
        assert rows[name].note.startswith("WRONG in ")
    orders = rows["300 random orders"]
    assert orders.failed
    assert int(orders.note.split()[0]) > 100


def test_a_safe_schedule_is_not_taken_for_the_refuted_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: with the guard on nothing goes wrong."""

    def guarded(*arguments: Any, **named: Any) -> runtime.Offloaded:
        return offload_without_proof(*arguments, **named, guard=True)

    monkeypatch.setattr(device_right, "offload_without_proof", guarded)
    rows = rows_of(right, bench)
    row = rows["modular, N=5, K=2"]
    assert (row.failed, row.note) == (True, "nothing is wrong; the verifier names module 4")


def test_a_replay_that_does_nothing_is_not_right(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(_: runtime.Offloaded, call: Callable[[], torch.Tensor]) -> SimpleNamespace:
        return SimpleNamespace(replay=lambda: None, output=call())

    monkeypatch.setattr(runtime.Offloaded, "capture", capture)
    row = rows_of(right, bench)["50 replays, passes cut short between"]
    assert row.failed
    assert row.note.startswith("50 wrong; 50 passes cut short, ")


@pytest.mark.parametrize("factor", [0.5, float("nan")])
def test_a_pass_with_another_output_fails(bench: Bench, factor: float) -> None:
    expected = torch.ones(2, device=DEVICE)
    arm = Arm(lambda: expected * factor, lambda: 0, 0, 0)
    row = row_of(bench, "a part", "a pass", arm, Whole(1.0, expected, 1))
    assert row.failed
    assert "FAILED; differs by" in str(row)
    right_one = Arm(lambda: expected * 1, lambda: 0, 0, 0)
    assert not row_of(bench, "a part", "a pass", right_one, Whole(1.0, expected, 1)).failed


def test_where_the_device_is_too_small_one_layer_stands_for_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_memory, "device_memory", lambda _: (None, 1))
    two, three = rows_of(decode, bench).values()
    for row in (two, three):
        assert (row.failed, row.difference) == (False, None)
        assert row.compute > 0
        assert "compute: one layer 5 times, since all do not fit the device" in row.note
    assert two.bytes > three.bytes > 0


def test_where_the_host_is_too_small_fewer_layers_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def there(layers: int) -> None:
        size = int(layers * TINY.bytes * 1.1 / 0.8) + 8
        monkeypatch.setattr(memory, "available", lambda: size)

    there(4)
    row = rows_of(decode, bench)["tiny, 4 layers, K=2"]
    assert "4 of 5 layers, since 0.1 MB of host memory are available" in row.note
    there(2)
    (failed,) = device.guarded("decode", "", lambda: decode(bench))
    assert failed.failed
    assert "host memory are available, and 3 layers need" in failed.note


def test_a_device_that_locks_no_memory_of_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_calibration, "registration_of", lambda _: None)
    rows = rows_of(calibration, bench)
    row = rows.pop("to the device, registered")
    assert (row.failed, row.note) == (False, "simdev locks no memory of others")
    assert len(rows) == 3 + 3 + 1 + 4


def test_host_memory_that_can_not_be_locked_costs_its_own_rows_alone(
    bench: Bench, sim: SimDevice
) -> None:
    """The driver's error of the failed registration is no later kernel's."""
    torch.accelerator.empty_host_cache()
    with sim.pinned_fails_at(200_000):
        rows = rows_of(calibration, bench)
    assert {what: row.failed for what, row in rows.items()} == {
        "to the device, pinned": True,
        "to the device, registered": True,
        "to the device, slab": True,
        "both ways at once, 64 KiB each": False,
        "an upload beside others": True,
    }
    assert "can't register" in rows["to the device, registered"].note
    assert not any(row.failed for row in rows_of(decode, bench).values())


def test_without_a_peak_there_are_no_claims(bench: Bench) -> None:
    unknown = Bench(bench.device, True, TINY_SIZES, float("inf"))
    (failed,) = device.guarded("claims", "", lambda: claims(unknown))
    assert "the copy peak is not known" in failed.note
    for row in rows_of(decode, unknown).values():
        assert (row.bound, row.ratio, row.of_peak, row.failed) == (None, None, None, False)


def test_a_library_that_is_not_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemes, "find_spec", lambda _: None)
    row = rows_of(baselines, bench)["tiny, 4 layers, accelerate cpu_offload"]
    assert (row.note, row.seconds, row.failed) == ("not installed", None, False)


def test_the_sanitizers_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model is right here too; and what it says, or dies of, is the row."""
    assert is_right(torch.device(DEVICE))
    asked: dict[str, Any] = {}
    said: dict[str, Any] = {"returncode": 0, "stdout": "a\nfine\n"}

    def run(command: list[str], **named: Any) -> Any:
        asked.update(named, command=command)
        return SimpleNamespace(stderr="b\nCUDA error\n", **said)

    monkeypatch.setattr(subprocess, "run", run)
    assert sanitized(1000) == (True, "fine")
    assert asked["command"][1:] == ["-m", "benchmarks.device_sanitizer"]
    assert (asked["env"]["TORCH_CUDA_SANITIZER"], asked["timeout"]) == ("1", 120)
    said |= {"returncode": 1, "stdout": ""}
    assert sanitized(-5) == (False, "CUDA error")
    assert asked["timeout"] == 20
    said |= {"stdout": "WRONG; and so on\n"}
    assert sanitized(-5) == (False, "WRONG; and so on")

    def hangs(*_: Any, timeout: float, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("it", timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert sanitized(30) == (False, "not done after 30 s")
