"""``python -m runtime profile``: its file plans, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import runtime
from runtime import demo
from runtime.__main__ import main
from runtime.sizes import megabytes
from schedule import costsfile

LAYERS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "model"
    demo.random_qwen3(LAYERS).model.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.link.LARGEST", 1 << 18)


def test_the_file_plans_the_model(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "costs.json"
    command = ["profile", str(folder), "--costs", str(file), "--device", "cpu"]
    assert main([*command, "--prompt", "7", "--tokens", "9"]) == 0
    out = capsys.readouterr().out
    costs = costsfile.read(file)
    assert [(one.name, one.weight) for one in costs.workloads] == [
        ("prefill", 1.0),
        ("decode", 9.0),
    ]
    assert [one.name for one in costs.modules] == [f"model.layers.{i}" for i in range(LAYERS)]
    assert costs.link.streams == 0
    for one in costs.workloads:
        assert min(one.compute) > 0
        assert max(one.between) > 0
    lines = out.splitlines()
    assert lines[0] == f"{costs.model} on {costs.device}, torch {torch.__version__}"
    assert lines[0].startswith(str(folder))
    assert lines[2].endswith("; compute waits while it copies")
    assert lines[3].split() == ["ms", "bytes", "copy", "prefill", "x1", "decode", "x9"]
    assert [line.split()[0] for line in lines[4:7]] == [one.name for one in costs.modules]
    assert lines[-1] == f"written: {file}"
    subject = demo.local(str(folder))
    wanted = demo.ask(subject, 4)
    budget = costs.resident + sum(costs.sizes) // 2
    with runtime.offload(subject.model, memory=budget, costs=file) as offloaded:
        answer = demo.ask(subject, 4)
        assert offloaded.report().copies > 0
    assert answer.tokens == wanted.tokens
    assert torch.equal(answer.logits, wanted.logits)


def test_json(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "costs.json")
    assert main(["profile", str(folder), "--costs", file, "--device", "cpu", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["file"] == file
    assert data["costs"] == json.loads(Path(file).read_text())
    assert data["costs"]["workloads"][1]["weight"] == 64
    assert data["alone"] == {one["name"]: one["compute"] for one in data["costs"]["workloads"]}


def test_bench_takes_a_budget(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = str(tmp_path / "costs.json")
    assert main(["profile", str(folder), "--costs", file, "--device", "cpu"]) == 0
    capsys.readouterr()
    costs = costsfile.read(file)
    budget = costs.resident + sum(costs.sizes) // 2
    command = ["bench", str(folder), "--tokens", "2", "--device", "cpu", "--memory"]
    assert main([*command, str(budget), "--costs", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["report"]["copies"] > 0
    assert "prefill" in found["report"]["plan"]
    assert found["report"]["bytes_device"] <= budget
    assert main([*command, str(budget)]) == 0
    out = capsys.readouterr().out
    assert f" of {megabytes(budget)} on the device, " in out.splitlines()[2]
    assert "The tokens are equal." in out
    assert main([*command, "1GiB"]) == 0
    assert "the whole model fits: " in capsys.readouterr().out
    monkeypatch.setattr("runtime.bench.whole", None)  # all this is said before the model runs
    for options, said in (
        ([str(budget), "--slots", "2"], "decides about slots and policy"),
        (["1 KB"], "memory: 1000 bytes are too few"),
        (["much"], "memory='much' is no size"),
        ([str(budget), "--costs", "no such file"], "no such file can't be read"),
    ):
        assert main([*command, *options]) == 2
        assert said in capsys.readouterr().err
    assert main(["bench", str(folder), "--costs", file, "--device", "cpu"]) == 2
    assert "costs go with memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--prompt", "0"], "--prompt must be at least 1, got 0"),
        (["--costs", "no such folder/costs.json"], "can't write 'no such folder/costs.json'"),
        (["--costs", "."], "can't write '.'"),
        (["--device", "nowhere"], "device 'nowhere' is no device"),
    ],
)
def test_bad_input(
    options: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("runtime.workloads.subject_of", None)  # is said before a model is loaded
    assert main(["profile", "demo", *options]) == 2
    assert said in capsys.readouterr().err


def test_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    assert main(["profile", "no such model", "--costs", str(file), "--device", "cpu"]) == 2
    assert "can't be loaded" in capsys.readouterr().err
    assert not file.exists()
    with pytest.raises(SystemExit) as code:
        main(["profile", "demo", "--tokens", "0"])
    assert code.value.code == 2
