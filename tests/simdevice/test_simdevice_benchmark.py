"""``python -m benchmarks device`` at tiny sizes: every part runs, and counts what it says. Its
times are the simulation's and mean nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import device
from benchmarks.__main__ import main
from benchmarks.buffers import TwoBuffers
from benchmarks.device_baselines import SCHEMES
from benchmarks.device_claims import MODULES, POLICIES, planned
from benchmarks.device_models import (
    LLAMA_8B,
    LLAMA_70B,
    QWEN_06B,
    TINY,
    TINY_NORMED,
    Shape,
    layer_on,
)
from benchmarks.device_right import RINGS, SAFE
from benchmarks.device_rows import Row
from benchmarks.device_sizes import CALIBRATION, FULL, TINY_SIZES, TO_DEVICE, Bench
from schedule import Ring, policies
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def lines(sim: SimDevice, tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """One run of everything."""
    del sim
    file = tmp_path_factory.mktemp("benchmark") / "figures.json"
    code = main(["device", "--tiny", "--json", str(file)])
    found: Lines = json.loads(file.read_text(encoding="ascii"))["lines"]
    assert [line["note"] for line in found if line.get("failed")] == []
    assert code == 0
    return found


def of(lines: Lines, part: str) -> Lines:
    return [line for line in lines if line["part"] == part]


def aligned(size: int) -> int:
    return -(-size // 256) * 256


def tensors(shape: Shape) -> list[int]:
    """Bytes of a layer's parameters."""
    layer = layer_on(shape, torch.device("cpu"))
    return [p.numel() * p.element_size() for p in layer.parameters()]


def block(shape: Shape) -> int:
    """Bytes of a layer's block: its number, its tensors, each from a multiple of 256 on, and its
    number again."""
    *others, last = tensors(shape)
    return aligned(256 + sum(map(aligned, others)) + last + 8)


def test_shapes_are_those_of_the_public_models() -> None:
    """Weights in all layers: 70.6, 8.03 and 0.6 thousand millions, less embeddings and heads."""
    without = {shape: shape.layers * shape.bytes // 2 for shape in (LLAMA_70B, LLAMA_8B, QWEN_06B)}
    embeddings = {LLAMA_70B: 2 * 128_256, LLAMA_8B: 2 * 128_256, QWEN_06B: 151_936}
    in_all = {
        shape.name: number + (embeddings[shape] + 1) * shape.width
        for shape, number in without.items()
    }
    assert in_all == {
        "Llama-3-70B": 70_553_706_496,
        "Llama-3-8B": 8_030_261_248,
        "Qwen3-0.6B": 596_049_920,
    }
    for shape in (TINY, TINY_NORMED):
        assert sum(tensors(shape)) == shape.bytes
    assert FULL.decode == (LLAMA_70B, 12)
    assert 20e9 < 12 * LLAMA_70B.bytes < 21e9


def test_all_parts_are_there_and_say_where_they_ran(lines: Lines) -> None:
    header, *rows = lines
    assert (header["device"], header["simulated"], header["tiny"]) == ("simdev:0", True, True)
    assert header["host_bytes"] > 0
    assert list(dict.fromkeys(row["part"] for row in rows)) == list(device.PARTS)
    timed = [row for row in rows if row["part"] != "right"]
    assert min(row["seconds"] for row in timed) > 0


def test_the_calibration_copies_every_size_from_every_kind_of_memory(lines: Lines) -> None:
    rows = of(lines, "calibration")
    assert [row["what"] for row in rows] == [
        *(
            f"to the device, {kind}, {size}"
            for kind in ("pinned", "registered", "slab")
            for size in ("4 KiB", "64 KiB", "256 KiB")
        ),
        "both ways at once, 64 KiB each",
        "4 KiB alone",
        "4 KiB behind 256 KiB",
        "4 KiB behind 256 KiB in chunks of 64 KiB",
        "4 KiB the same, with an event after each chunk",
    ]
    assert [row["bytes"] for row in rows[6:10]] == [4096, 65536, 2**18 - 256, 2 * 65536]
    for row in rows[:10]:
        assert row["rate"] == pytest.approx(row["bytes"] / row["seconds"] / 1e9)


def test_every_pass_is_held_against_its_bound(lines: Lines) -> None:
    peak = max(row["rate"] for row in of(lines, "calibration")[:9]) * 1e9
    passes = [row for row in lines if row.get("compute") is not None]
    assert len(passes) == 2 + 4 + 12 + 6 + 4
    for row in passes:
        bound = max(row["compute"], row["bytes"] / peak)
        assert row["bound"] == pytest.approx(bound)
        assert row["ratio"] == pytest.approx(row["seconds"] / bound)
        assert row["of_peak"] == pytest.approx(row["bytes"] / row["seconds"] / peak)
        assert row["stall"] == pytest.approx(row["seconds"] - row["compute"])
        assert row["host"] > 0
        # Compiled ones are these bit for bit on this device alone: nothing is fused.
        assert row["difference"] == 0, row["what"]


def test_passes_copy_what_their_schedules_do(lines: Lines) -> None:
    tiny, normed = block(TINY), block(TINY_NORMED)
    two, three = of(lines, "decode")
    assert (two["bytes"], two["device"], two["locked"]) == (5 * tiny, 2 * tiny, 5 * 20480)
    assert (three["bytes"], three["device"]) == (4 * tiny, 3 * tiny)  # one module is kept
    assert [row["what"] for row in of(lines, "prefill")] == [
        f"tiny, 4 layers, K={slots}, {tokens} tokens" for slots in (2, 3) for tokens in (4, 8)
    ]
    copies = [policies.double_buffer(Ring(4, slots)).copies for slots in (2, 2, 3, 3)]
    assert copies == [4, 4, 2, 2]
    assert [row["bytes"] for row in of(lines, "prefill")] == [tiny * each for each in copies]
    small = of(lines, "small")
    assert [row["what"] for row in small] == [
        f"tiny, normed, {how}, {which}"
        for how in ("eager", "captured", "compiled by layer")
        for which in ("all layers", "one layer in 8")
    ]
    assert policies.double_buffer(Ring(3, 2)).copies == 2
    assert [row["bytes"] for row in small] == [24 * normed, 2 * normed] * 3
    assert small[1]["note"] == "double_buffer, N=3, K=2"
    assert small[1]["device"] == 2 * normed + 21 * TINY_NORMED.bytes


def test_claims_are_in_units_beside_the_plan(lines: Lines) -> None:
    rows = iter(of(lines, "claims"))
    for modules in MODULES:
        for policy in POLICIES:
            for how in ("eager", "captured"):
                row = next(rows)
                assert row["what"] == f"N={modules}, K=4, {policy}, {how}"
                assert row["units"] == pytest.approx(row["seconds"] / row["compute"] * modules)
                assert row["planned"] == planned(policy, modules, how)
                copies = {"slot_local": modules, "double_buffer": modules - 2}.get(policy)
                if copies:
                    assert row["bytes"] == copies * (256 + TINY_SIZES.block + 256)
    assert next(rows, None) is None


def test_the_plan_is_that_of_the_programs() -> None:
    units = {
        (policy, how): tuple(planned(policy, modules, how) for modules in (9, 10))
        for policy in POLICIES
        for how in ("eager", "captured")
    }
    assert units == {
        ("slot_local", "eager"): (19, 20),
        ("slot_local", "captured"): (19, 21),
        ("balanced", "eager"): (16, 18),
        ("balanced", "captured"): (18, 19),
        ("double_buffer", "eager"): (15, 16),
        ("double_buffer", "captured"): (15, 17),  # what is kept comes last, and hides the wrap
    }


def test_baselines_are_right_too(lines: Lines) -> None:
    rows = of(lines, "baselines")
    assert [row["what"] for row in rows] == [f"tiny, 4 layers, {name}" for name in SCHEMES]
    assert {row["bytes"] for row in rows} == {4 * TINY.bytes}
    by_name = dict(zip(SCHEMES, rows, strict=True))
    assert by_name["plain double buffering"]["device"] == 2 * sum(map(aligned, tensors(TINY)))
    assert by_name["plain double buffering"]["locked"] == 4 * sum(map(aligned, tensors(TINY)))


def test_what_is_right_and_where_the_refuted_rule_is_wrong(lines: Lines) -> None:
    rows = {row["what"]: row["note"] for row in of(lines, "right")}
    for ring, module in zip(RINGS, (2, 4, 6), strict=True):
        note = rows.pop(f"modular, N={ring.modules}, K={ring.slots}")
        assert note == f"module {module} is wrong first; the verifier names module {module}"
    assert rows.pop("300 random orders").startswith("0 wrong; ")
    replays = rows.pop("50 replays, passes cut short between")
    assert replays.startswith("0 wrong; 50 passes cut short, ")
    assert rows.pop("torch's CUDA sanitizer") == "not run: it knows no simdev"
    for name in SAFE:
        schedules = [policies.named(name)(ring) for ring in RINGS]
        passes = 2 * sum(schedule.period for schedule in schedules)
        copies = 2 * sum(schedule.copies for schedule in schedules)
        said = f"bit for bit in {passes} passes; {copies} copies, 0 misses"
        assert rows.pop(name) == said
    assert not rows


def test_the_peak_is_the_highest_rate_to_the_device() -> None:
    bench = Bench(torch.device("cpu"), True, TINY_SIZES, float("inf"))
    assert bench.peak is None
    for row, peak in (
        (Row(CALIBRATION, "both ways at once", rate=9), None),
        (Row(CALIBRATION, f"{TO_DEVICE}, pinned", rate=2), 2e9),
        (Row(CALIBRATION, f"{TO_DEVICE}, slab", rate=1), 2e9),
        (Row(CALIBRATION, f"{TO_DEVICE}, registered"), 2e9),
        (Row("decode", f"{TO_DEVICE}, not copies alone", rate=3), 2e9),
    ):
        bench = bench.calibrated(row)
        assert bench.peak == peak


def test_plain_double_buffering_is_right_under_every_seed(sim: SimDevice) -> None:
    """A baseline without its fences would be no baseline."""
    device = torch.device(DEVICE)
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(5)).requires_grad_(False)
    inputs = torch.randn(2, 16)

    def passes(x: torch.Tensor) -> torch.Tensor:
        found = []
        for _ in range(3):
            for layer in layers:
                x = torch.tanh(layer(x))
            found.append(x)
        return torch.stack(found)

    expected, x = passes(inputs), inputs.to(device)
    buffers = TwoBuffers(layers, device)
    for adversary in ADVERSARIES:
        for seed in range(4):
            with sim.steps(seed, adversary):
                given = passes(x)
            assert torch.equal(given.cpu(), expected), (adversary, seed)
    buffers.remove()
    assert torch.equal(passes(inputs), expected)
