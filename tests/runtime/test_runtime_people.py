"""What people are told: the report of three models, the log about misses, the bar."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime import Report
from runtime.misses import MissLog
from runtime.progress import with_bar
from runtime.report import DERIVED
from schedule.ring import EMPTY
from tests.runtime.models import Stack, after_run, batches, outputs, stack

# ---- the report of three models


def llama() -> tuple[nn.Module, dict[str, Any]]:
    """Of SmolLM2's shape, a third as wide: 30 layers, and a head that is the embedding."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        num_hidden_layers=30,
        hidden_size=192,
        intermediate_size=512,
        num_attention_heads=3,
        num_key_value_heads=1,
        vocab_size=4096,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config).eval(), {"input_ids": torch.ones(1, 3).long()}


def t5() -> tuple[nn.Module, dict[str, Any]]:
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=128, d_kv=32, d_ff=512, num_layers=4, num_heads=4, vocab_size=2048
    )
    tokens = torch.ones(1, 3).long()
    model = transformers.T5ForConditionalGeneration(config).eval()
    return model, {"input_ids": tokens, "decoder_input_ids": tokens}


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(500, 500) for _ in range(3))
        self.layers[2].bias = self.layers[0].bias
        self.table = nn.Embedding(1000, 500)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x)
        for layer in self.layers:
            x = layer(x)
        return x


def plain() -> tuple[nn.Module, dict[str, Any]]:
    return Plain(), {"x": torch.zeros(1).long()}


TEXTS = {
    llama: [
        "schedule   double_buffer, 30 modules over 4 slots, verified",
        "guard      on; 0 misses in 60 runs",
        "device     cpu: 6.3 MB in slots, 3.1 MB beside them; 40.9 MB saved of 50.4 MB",
        "beside     lm_head.weight 3.1 MB",
        "host       0.0 MB locked, 47.2 MB pageable",
        "copies     4 to preload, then 28.0 a pass, 0 redundant; 94.5 MB in all",
        "kept       model.layers.28, model.layers.29",
    ],
    t5: [
        "schedule   double_buffer, 8 modules over 4 slots, verified",
        "guard      on; 0 misses in 16 runs",
        "device     cpu: 4.2 MB in slots, 1.0 MB beside them; 3.1 MB saved of 8.4 MB",
        "beside     lm_head.weight 1.0 MB",
        "host       0.0 MB locked, 7.4 MB pageable",
        "copies     4 to preload, then 6.0 a pass, 0 redundant; 14.2 MB in all",
        "kept       decoder.block.2, decoder.block.3",
    ],
    plain: [
        "schedule   double_buffer, 3 modules over 4 slots, verified",
        "guard      on; 0 misses in 6 runs",
        "device     cpu: 3.0 MB in slots, 2.0 MB beside them; nothing saved of 5.0 MB",
        "saved      nothing: each of the 3 modules has a slot to itself; give fewer slots than "
        "modules, or leave the model on the device",
        "beside     table.weight 2.0 MB",
        "host       0.0 MB locked, 3.0 MB pageable",
        "copies     3 to preload, then 0.0 a pass, 0 redundant; 3.0 MB in all",
        "kept       layers.0, layers.1, layers.2",
        "shared     layers.2.bias stay on the device",
    ],
}


def weight_bytes(model: nn.Module) -> int:
    tensors = {id(one): one for one in [*model.parameters(), *model.buffers()]}
    return sum(one.numel() * one.element_size() for one in tensors.values())


@pytest.mark.parametrize("make", TEXTS, ids=lambda make: make.__name__)
def test_the_text_of_a_report(make: Any) -> None:
    model, inputs = make()
    whole = weight_bytes(model)
    with torch.no_grad(), runtime.offload(model, slots=4) as offloaded:
        for _ in range(2):
            model(**inputs)
        report = offloaded.report()
    assert str(report).splitlines() == TEXTS[make]
    assert report.bytes_whole == report.bytes_offloaded + report.bytes_rest == whole
    assert report.bytes_offloaded <= report.bytes_locked + report.bytes_pageable


# ---- as JSON, and in a terminal

KEYS = (
    "policy modules slots device verified guard bytes_whole bytes_offloaded bytes_slots bytes_rest "
    "bytes_locked bytes_pageable bytes_reserved bytes_free preloaded copies bytes_copied redundant "
    "runs misses kept largest stay plan passes copies_a_pass bytes_device bytes_saved"
)


def report_of(model: Stack, layers: list[nn.Module] | None = None) -> Report:
    with runtime.offload(model, layers, slots=2, policy="slot_local") as offloaded:
        outputs(model, batches(2))
        return offloaded.report()


def test_the_json_of_a_report_has_every_number() -> None:
    report = report_of(stack(3))
    data = json.loads(report.json())
    assert list(data) == KEYS.split() == list(report.as_dict())
    assert data["kept"] == ["layers.1"]
    assert data["largest"][0] == ["embed.weight", 256]
    assert {name: data[name] for name in DERIVED} == {
        "passes": 2.0,
        "copies_a_pass": 3.0,
        "bytes_device": report.bytes_slots + report.bytes_rest,
        "bytes_saved": report.bytes_whole - report.bytes_device,
    }


def test_in_a_terminal_misses_are_red() -> None:
    rich = pytest.importorskip("rich.console")

    def shown(report: Report) -> str:
        console = rich.Console(
            file=io.StringIO(), force_terminal=True, width=99, color_system="standard"
        )
        console.print(report)
        return console.file.getvalue()

    model = stack(3)
    right, wrong = report_of(model), report_of(model, [model.layers[i] for i in (2, 0, 1)])
    assert "\x1b[31m" not in shown(right)
    assert wrong.misses == 1
    assert f"\x1b[31mon; {wrong.misses} miss in 6 runs" in shown(wrong)
    for about, line in wrong.rows():
        assert about in shown(wrong)
        assert line[:40] in shown(wrong)


def test_many_kept_modules_are_counted() -> None:
    with runtime.offload(stack(9), slots=9) as offloaded:
        assert "kept       layers.0, layers.1, layers.2, layers.3, 5 more" in str(
            offloaded.report()
        )


# ---- the log


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """What was logged, by level."""
    caplog.set_level(logging.DEBUG, "ringproof.runtime")
    return lambda level: [r.getMessage() for r in caplog.records if r.levelname == level]


def test_the_first_miss_of_each_module_is_logged_and_that_there_are_many_once(told: Any) -> None:
    model = stack(5)
    layers = [model.layers[i] for i in (2, 0, 1, 3, 4)]
    with runtime.offload(model, layers, slots=2, policy="slot_local"):
        outputs(model, batches(9))
    assert told("DEBUG") == [
        f"miss: layers.{name} (module {module}) came after {after}; its slot held {held}"
        for name, module, after, held in (
            (1, 2, "layers.0 (module 1)", "layers.2 (module 0)"),
            (2, 0, "layers.1 (module 2)", "layers.4 (module 4)"),
            (4, 4, "layers.3 (module 3)", "layers.1 (module 2)"),
        )
    ]
    (warning,) = told("WARNING")  # and not another one that says how many misses there were
    assert "in another order than that of layers: 3 misses in it" in warning


def test_a_pass_out_of_order_is_no_reason_to_warn(told: Any) -> None:
    model = stack(4)
    with torch.no_grad(), runtime.offload(model, slots=2) as offloaded:
        model.layers[2](torch.zeros(1, 8))
        outputs(model, batches(12))
        assert 0 < offloaded.report().misses < 5
    assert told("DEBUG")[0] == (
        "miss: layers.2 (module 2) came first of all; its slot held layers.0 (module 0)"
    )
    assert told("WARNING") == []


def test_an_update_is_told_apart_from_another_order(told: Any) -> None:
    model = stack(3)
    master = model.layers[1].up.weight
    with runtime.offload(model, slots=3):
        after_run(model, lambda: master.add_(0))
        outputs(model, batches(2))
    assert told("DEBUG") == [
        "miss: layers.1 (module 1) came after layers.0 (module 0); its slot held it as it was "
        "before it was written"
    ]


@pytest.mark.parametrize(
    ("runs", "misses", "warns"),
    [(8, 8, False), (9, 1, True), (10, 1, False), (30, 3, False), (30, 4, True)],
)
def test_when_there_are_many(told: Any, runs: int, misses: int, warns: bool) -> None:
    log = MissLog(["a", "b", "c"])
    log.missed(2, 3, EMPTY, runs, misses)
    log.missed(2, 0, EMPTY, runs, misses)
    assert len(told("WARNING")) == warns
    assert told("DEBUG") == ["miss: c (module 2) came first of all; its slot held nothing"]


def test_refresh_and_close_are_logged_with_the_totals(told: Any) -> None:
    model = stack(3)
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        outputs(model, batches(2))
        offloaded.refresh()
    offloaded.close()
    assert told("INFO")[1:] == [
        "refresh: every module is loaded again before it next runs",
        "closed after 6 runs, 2.0 passes: 0 misses; 6 copies, 0 of them redundant, 7.7 KB in all",
    ]
    assert not logging.getLogger("ringproof.runtime").handlers


def test_the_log_has_its_name_from_one_place() -> None:
    files = Path(runtime.__file__).parent.glob("*.py")
    assert [file.name for file in files if '"ringproof.runtime"' in file.read_text()] == ["log.py"]


# ---- the bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_on_a_terminal() -> None:
    stream, seen = Terminal(), []
    for item in with_bar("ab", [10**8, 3 * 10**8], "moving weights", least=10**8, stream=stream):
        seen.append(item)
    frames = stream.getvalue().split("\r")
    first = "moving weights [                              ] 0.0 of 0.4 GB"
    assert seen == ["a", "b"]
    assert frames == [
        "",
        first,
        "moving weights [#######                       ] 0.1 of 0.4 GB",
        " " * len(first),
        "",
    ]


@pytest.mark.parametrize(("stream", "least"), [(io.StringIO(), 1), (Terminal(), 31)])
def test_no_bar_in_a_pipe_or_for_little(stream: io.StringIO, least: int) -> None:
    assert list(with_bar([1, 2], [10, 20], "x", least=least, stream=stream)) == [1, 2]
    assert stream.getvalue() == ""


def test_the_bar_goes_away_when_the_work_fails() -> None:
    stream = Terminal()

    def work() -> None:
        for _ in with_bar([1, 2], [1, 2], "x", least=1, stream=stream):
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        work()
    assert stream.getvalue().endswith(" \r")
