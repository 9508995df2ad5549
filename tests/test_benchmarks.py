"""The benchmarks count what they say; how long it takes is for people to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks import device, passes, schemes
from benchmarks.__main__ import main
from benchmarks.device_models import TINY, TINY_NORMED, Shape, layer_on, prompt, token
from benchmarks.device_rows import Row
from benchmarks.passes import SCHEMES
from proofs.claims import claims
from proofs.obligation import System, discharge
from schedule import Ring, check, policies
from schedule.program import lower
from tests.simdevice import device as simdevice


def test_verify_counts_every_ring_of_every_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["verify", "--to", "3", "--local", "4", "--json", str(file)]) == 0
    every, local = json.loads(file.read_text(encoding="ascii"))["lines"]
    rings = [
        (policy, Ring(n, k))
        for policy in policies.NAMED.values()
        for n in range(1, 4)
        for k in range(policy.least_slots, 4)
    ]
    assert every["rings"] == len(rings) == 8 * 9 + 2 * 6
    listings = [lower(policy(ring)).listing(2) for policy, ring in rings]
    assert every["operations"] == sum(map(len, listings)) > 1000
    assert every["violated"] == 1  # modular at (3, 2)
    assert (local["rings"], local["violated"]) == (16, 0)
    balanced = [policies.balanced(Ring(n, k)) for n in range(1, 5) for k in range(1, 5)]
    assert local["operations"] == sum(len(one.slot_of) + one.copies for one in balanced)
    assert all(check(one).safe for one in balanced)
    assert min(every["seconds"], local["seconds"]) > 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "ordering and identity, every policy, all rings to 3x3",
        "building and local check of balanced, all rings to 4x4",
    ]


def test_sizes_below_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["verify", "--to", "0"])
    assert error.value.code == 2
    assert "sizes are at least 1" in capsys.readouterr().err


def test_proofs_counts_each_obligation_and_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["proofs", "--only", "4", "--json", str(file)]) == 0
    *obligations, whole = json.loads(file.read_text(encoding="ascii"))["lines"]
    assert [line["what"] for line in obligations] == ["claim 4, closed form", "claim 4, chain"]
    claim = next(claim for claim in claims(System()) if claim.number == 4)
    resources = [discharge(obligation).resources for obligation in claim.obligations]
    assert [line["resources"] for line in obligations] == resources
    assert whole["what"].endswith("PROVED: 1 claims, 2 obligations, 2 of 2 mutants refuted")
    assert whole["resources"] is None
    assert min(line["seconds"] for line in (*obligations, whole)) > 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_runtime_compares_hooks_and_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(schemes, "find_spec", lambda name: name != "accelerate" and find_spec(name))
    file = tmp_path / "figures.json"
    assert main(["runtime", "--tiny", "--json", str(file)]) == 0
    lines = json.loads(file.read_text(encoding="ascii"))["lines"]
    (note,), hooks, times = (
        [line for line in lines if line["part"] == part] for part in ("note", "hooks", "passes")
    )
    assert "inline" in note["text"]
    assert [(line["parameters"], line["how"]) for line in hooks] == [
        (parameters, how) for parameters in (1, 11) for how in ("K >= N", "with refills")
    ]
    for line in hooks:
        assert line["aim"] == pytest.approx(line["empty"] + 3 + 0.2 * line["parameters"])
    schemes_, seed = times[:-2], times[-2:]
    assert [line["scheme"] for line in schemes_] == ["plain", *SCHEMES]
    assert [line["scheme"] for line in seed] == ["plain", "ringproof"]
    assert seed[1]["note"] == "double_buffer, N=3, K=2"
    by_scheme = {line["scheme"]: line for line in schemes_}
    missing = by_scheme.pop("accelerate cpu_offload")
    assert (missing["note"], missing["seconds"]) == ("not installed", None)
    if not find_spec("diffusers"):
        assert by_scheme.pop("diffusers group offloading")["note"] == "not installed"
    assert all(line["equal"] for line in (*by_scheme.values(), *seed))
    layer = 4 * (32 * 32 + 32)
    assert by_scheme["plain"]["bytes_device"] == 4 * layer
    assert by_scheme["vLLM's scheme"]["bytes_device"] == 2 * layer
    # The module's number, its weight and its bias, each aligned to 256.
    assert by_scheme["ringproof"]["bytes_device"] == 2 * (256 + 4 * 32 * 32 + 256)
    assert not any(line["bytes_locked"] for line in by_scheme.values())
    assert len(capsys.readouterr().out.splitlines()) == len(lines) == 1 + 4 + 5 + 2


def test_an_output_that_differs_is_said() -> None:
    """Twin: a scheme that is wrong is seen."""

    def wrong(model: nn.Module, *_: object) -> schemes.Ready:
        model.layers[1].bias.add_(1)  # type: ignore[index,union-attr]
        return schemes.Ready(model, lambda: 0, lambda: 0)

    found = passes.compare(
        "a model",
        passes.Linears(2, 4),
        lambda one: one.layers,  # type: ignore[arg-type,return-value]
        lambda one, _: one(torch.ones(1, 4)),
        torch.device("cpu"),
        {"wrong": wrong},
        1,
    )
    plain, other = found
    assert (plain.equal, other.equal) == (True, False)
    assert "its output DIFFERS" in str(other)
    assert "DIFFERS" not in str(plain)


def test_without_an_accelerator_the_device_benchmark_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """And so it does where the simulated one can't be built."""
    file = tmp_path / "figures.json"
    assert main(["device", "--json", str(file)]) == 2
    assert "add --tiny to try it on a simulated one" in capsys.readouterr().err

    def start() -> None:
        raise simdevice.NoCompiler("no C++ compiler")

    monkeypatch.setattr(simdevice, "start", start)
    assert main(["device", "--tiny"]) == 2
    found = capsys.readouterr()
    assert "can't be built here (no C++ compiler); it needs a C++ compiler" in found.err
    assert not found.out
    assert not file.exists()


def test_a_file_that_can_not_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in tmp_path, tmp_path / "nowhere" / "figures.json":
        with pytest.raises(SystemExit, match="2"):
            main(["verify", "--json", str(file)])
        assert "no file can be written there" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["nan", "-5", "0", "five"])
def test_a_budget_in_which_nothing_is_measured_is_refused(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["device", "--tiny", f"--seconds={seconds}"])
    assert f"{seconds!r} is no number of seconds above 0" in capsys.readouterr().err


def test_lines_that_say_that_something_is_wrong_are_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And figures that were measured before an error are not lost."""
    file = tmp_path / "figures.json"
    rows = [Row("a part", "fine"), Row("a part", "wrong", failed=True)]
    monkeypatch.setattr(device, "lines", lambda **_: iter(rows[:1]))
    assert main(["device"]) == 0
    monkeypatch.setattr(device, "lines", lambda **_: iter(rows))
    assert main(["device"]) == 1

    def interrupted(**_: object) -> Iterator[Row]:
        yield rows[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(device, "lines", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(["device", "--json", str(file)])
    (line,) = json.loads(file.read_text(encoding="ascii"))["lines"]
    assert (line["what"], line["failed"]) == ("fine", False)


@pytest.mark.parametrize("shape", [TINY, TINY_NORMED], ids=lambda shape: shape.name)
def test_tokens_one_by_one_are_what_they_are_as_a_prompt(shape: Shape) -> None:
    """The device benchmark's layer: rotations, masks and caches fit each other."""
    tokens = 6
    torch.manual_seed(0)
    layer = layer_on(shape, torch.device("cpu")).double()
    whole = prompt(shape, tokens, torch.device("cpu"))
    x, cos, sin = (one.double() for one in (whole.x, whole.cos, whole.sin))
    expected = layer(x, cos, sin)
    keys, values = (torch.empty(1, shape.pairs, 0, shape.head, dtype=x.dtype) for _ in range(2))
    for number in range(tokens):
        new = x.new_full((1, shape.pairs, 1, shape.head), float("nan"))
        keys, values = torch.cat((keys, new), 2), torch.cat((values, new), 2)
        here = slice(number, number + 1)
        given = layer(x[:, here], cos[here], sin[here], keys, values)
        assert torch.allclose(given, expected[:, here], atol=1e-12)
        one = token(shape, 1, number + 1, torch.device("cpu"))
        assert torch.equal(one.cos.double(), cos[here])
        assert one.caches[0][0].shape == keys.shape
