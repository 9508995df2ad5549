"""The commands ``doctor`` and ``bench`` on a plain CPU; tests/simdevice has the accelerator's."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime import bench, demo, device, doctor, hooks
from runtime.__main__ import main
from runtime.findings import ABSENT, FAIL, OK, Finding
from runtime.interpreter import Interpreter

CPU = torch.device("cpu")
NEED = ["host waits", "streams wait", "latest record", "copies return", "overlap", "pinned memory"]
Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "WIDTH", 16)
    monkeypatch.setattr(doctor, "COPIED", 1 << 16)


# ---- doctor


def test_on_a_cpu_the_doctor_says_what_needs_an_accelerator(capsys: Output) -> None:
    assert main(["doctor", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["good"]) == ("cpu", True)
    verdicts = {one["name"]: one["verdict"] for one in found["findings"]}
    passed = ("bandwidth", "offloaded model", "compiler")
    assert verdicts == dict.fromkeys(NEED, ABSENT) | dict.fromkeys(passed, OK)
    sentences = [one["sentence"] for one in found["findings"] if one["verdict"] == ABSENT]
    assert all(sentence.endswith("this needs an accelerator") for sentence in sentences)


def test_a_model_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interpreter, "holds", lambda *_: True)
    assert doctor.offloaded_model(CPU) == Finding(
        "offloaded model",
        FAIL,
        "offloaded by double_buffer: pass 1 differs from the plain model's",
    )


def test_hooks_that_the_compiler_sees_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_closed_to_dynamo", lambda hook: hook)
    found = doctor.compiler(CPU)
    assert found.verdict == FAIL
    assert found.sentence == "torch.compile looks into hooks that are closed to it"


def test_one_fail_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    def bad(device: torch.device) -> Finding:
        return Finding("bad", FAIL, f"{device} is broken")

    monkeypatch.setattr(doctor, "CHECKS", (bad,))
    assert main(["doctor", "--device", "cpu"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "FAIL      bad              cpu is broken",
        "0 ok, 1 FAIL, 0 not here",
    ]


@pytest.mark.parametrize("command", [["doctor"], ["bench", "demo"]])
@pytest.mark.parametrize("name", ["cuda:9", "nonsense"])
def test_a_device_that_is_not_there(command: list[str], name: str, capsys: Output) -> None:
    assert main([*command, "--device", name]) == 2
    assert name in capsys.readouterr().err


# ---- bench


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers")
    path = tmp_path_factory.mktemp("model")
    demo.random_qwen3(layers=6).model.save_pretrained(path)
    return str(path)


def test_a_folder_is_measured_whole_and_offloaded(folder: str, capsys: Output) -> None:
    arguments = ["bench", folder, "--slots", "3", "--policy", "chain", "--tokens", "4"]
    assert main([*arguments, "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    report = found["report"]
    assert (found["model"], found["prompt_tokens"], found["equal"]) == (folder, 12, True)
    assert found["plain"]["tokens"] == found["offloaded"]["tokens"]
    assert len(found["plain"]["tokens"]) == 4
    assert (report["policy"], report["slots"], report["modules"]) == ("chain", 3, 6)
    assert (report["passes"], report["misses"]) == (5.0, 0)  # one of them warms up
    assert found["bytes_a_pass"] == report["copies_a_pass"] * report["bytes_copied"] / (
        report["copies"] + report["preloaded"]
    )
    times = found["offloaded"]["decode"], found["plain"]["decode"]
    assert found["ratios"]["decode"] == times[0] / times[1]


OPTIONS = dict.fromkeys(bench.OPTIONS) | {"slots": 2, "pin": False}


def of(plain: bench.Walk | None, ours: bench.Walk) -> bench.Bench:
    with torch.no_grad():
        measured = bench.measure(demo.random_qwen3(layers=4), 1, CPU, OPTIONS)
    report = dataclasses.replace(
        measured.report, bytes_whole=10**7, bytes_slots=3 * 10**6, bytes_rest=10**6
    )
    return bench.Bench("a model", 5, plain, ours, report, 2e6)


def test_the_table() -> None:
    lines = str(of(bench.Walk([1, 2], 0.5, 0.1), bench.Walk([1, 2], 1.0, 0.25))).splitlines()
    assert lines == [
        "a model on cpu: 5 tokens of prompt, 2 new ones",
        "double_buffer, 4 modules over 2 slots; copies and bytes are a pass",
        "               prefill      decode   on the device   copies        bytes  misses",
        "plain         500.0 ms    100.0 ms         10.0 MB",
        "offloaded    1000.0 ms    250.0 ms          4.0 MB      4.0       2.0 MB       0",
        "ratio             2.00        2.50            0.40",
        "The tokens are equal.",
    ]


def test_a_model_that_does_not_fit_is_compared_with_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = demo.random_qwen3(layers=4)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(bench, "walk", full)
        assert bench.whole(subject, 2, CPU) is None
    found = of(None, bench.Walk([1], 1.0, None))
    assert found.equal is None
    assert str(found).splitlines()[-1] == "The whole model does not fit, so nothing is compared."
    assert found.as_dict()["ratios"] is None


def test_its_options_are_those_of_offload(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    given: dict[str, Any] = {}
    plain = bench.offload

    def offload(model: Any, **options: Any) -> Any:
        given.update(options)
        return plain(model, **options)

    monkeypatch.setattr(bench, "offload", offload)
    words = "--group-size 2 --keep model.layers.1 --keep *.3 --slots 1 --pin 1MiB --chunk 64KiB"
    assert main(["bench", folder, "--tokens", "2", "--device", "cpu", *words.split()]) == 0
    assert given == {
        "slots": 1,
        "policy": None,
        "group_size": 2,
        "keep": ["model.layers.1", "*.3"],
        "pin": "1MiB",
        "chunk": "64KiB",
        "memory": None,
        "costs": None,
        "device": CPU,
    }
    assert "single_buffer, 1 module over 1 slot;" in capsys.readouterr().out
    assert main(["bench", folder, "--tokens", "1", "--device", "cpu"]) == 0
    assert given == dict.fromkeys(bench.OPTIONS) | {"pin": True, "device": CPU}


def test_tokens_that_differ_are_exit_code_1(
    folder: str, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(device, "_copy", lambda pieces: [target.zero_() for target, _ in pieces])
    assert main(["bench", folder, "--tokens", "3", "--device", "cpu"]) == 1
    assert "The tokens DIFFER" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["no-such-model", "no/such/place", "."])
def test_a_model_that_can_not_be_had(name: str, tmp_path: Path, capsys: Output) -> None:
    pytest.importorskip("transformers")
    name = str(tmp_path) if name == "." else name
    assert main(["bench", name, "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {name!r} can't be loaded: give the folder of a causal")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slots", "0"], "slots must be at least 1, got 0"),
        (["--policy", "nonsense"], "no policy is called 'nonsense'"),
        (["--policy", "modular", "--slots", "4"], "ownership: pass 0"),
        (["--group-size", "9"], "group_size=9 with num_in_group=1 takes none of 6 layers"),
        (["--keep", "nothing"], "keep='nothing' matches none of the 6 layers"),
        (["--pin", "much"], "pin='much' is no size"),
        (["--chunk", "1"], "chunk='1' is 1 bytes; give at least"),
    ],
)
def test_what_is_wrong_is_said_before_the_plain_model_runs(
    folder: str, arguments: list[str], said: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "whole", lambda *_: pytest.fail("the plain model ran"))
    assert main(["bench", folder, "--tokens", "1", "--device", "cpu", *arguments]) == 2
    assert said in capsys.readouterr().err


def no_model(*_: Any) -> Any:
    pytest.fail("the model was loaded")


def test_a_policy_that_there_is_not_is_said_before_the_model_is_loaded(
    capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "subject_of", no_model)
    assert main(["bench", "demo", "--policy", "nonsense", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("error: no policy is called 'nonsense'")


@pytest.mark.parametrize("name", ["demo", "a/folder"])
def test_without_transformers_it_is_said_what_to_install(
    name: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(demo, "PACKAGE", "no_such_package")
    assert main(["bench", name, "--device", "cpu"]) == 2
    assert capsys.readouterr().err == (
        "error: demo, bench and profile need transformers: pip install 'ringproof[demo]' -c "
        "constraints/cpu.txt\n"
    )


def test_a_model_that_is_no_decoder_is_refused_in_a_line(tmp_path: Path, capsys: Output) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.T5Config().save_pretrained(tmp_path)
    assert main(["bench", str(tmp_path), "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert "T5Config" in error
    assert error.count("\n") == 1
    assert len(error) < 500
