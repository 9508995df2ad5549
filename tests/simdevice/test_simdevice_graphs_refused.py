"""What can't be captured or replayed: refused in words, and the model goes on as before."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from schedule import OffloadError
from schedule.audit import audit
from schedule.errors import ModuleNotResident, ScheduleError
from tests.runtime.threads import in_thread
from tests.simdevice.ahead import allocated
from tests.simdevice.graphs import Pair, Walked
from tests.simdevice.helpers import DEVICE


class Stop(BaseException):
    """Neither an error nor anything that torch knows."""


def assert_goes_on(pair: Pair) -> None:
    """Nothing was done by what was refused: passes and graphs are right, and miss nothing more
    than what was disturbed."""
    assert pair.eager()
    missed = pair.counts[2]
    assert pair.eager()
    assert pair.replayed(pair.capture())
    assert pair.counts[2] == missed


def test_after_close() -> None:
    with Pair() as pair:
        captured = pair.capture()
        assert pair.replayed(captured)
    with pytest.raises(OffloadError, match=r"^graph 0 can't be replayed: its offload is closed$"):
        captured.replay()
    with pytest.raises(OffloadError, match=r"^this offload is closed; capture while it is open$"):
        pair.offloaded.capture(lambda: pair.model(pair.inputs))
    assert repr(captured) == "<Captured graph 0 of 5 modules, ended>"
    assert captured.output is None


def test_a_closed_offload_leaves_no_memory_to_its_graphs() -> None:
    """While somebody still has them: slots, host blocks, outputs."""
    gc.collect()
    before = allocated()
    pair = Pair()
    captured = pair.capture()
    pair.inputs = torch.empty(0)
    pair.offloaded.close()
    pair.model.cpu()
    gc.collect()
    assert allocated() == before
    assert captured.output is None


def test_after_a_refresh_that_adopted_a_change() -> None:
    with Pair() as pair:
        captured = pair.capture()
        for model in (pair.model, pair.plain):
            torch.manual_seed(7)
            model.layers[2].up = nn.Linear(8, 40).requires_grad_(False)
            model.layers[2].down = nn.Linear(40, 8).requires_grad_(False)
        with pytest.raises(OffloadError, match=r"layers\.2\..* call refresh\(\) to adopt"):
            captured.replay()
        pair.offloaded.refresh()
        with pytest.raises(
            OffloadError, match=r"refresh\(\) adopted a change .*; capture it again"
        ):
            captured.replay()
        assert pair.replayed(pair.capture())


def test_weights_that_were_replaced_are_not_overlooked() -> None:
    """An eager pass refuses them at the binding; a replay binds nothing, and looks itself."""
    for change in (
        lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones(8, 8), False)),
        lambda layer: setattr(layer.weight, "data", torch.ones(8, 8)),
        lambda layer: layer._parameters.update(weight=nn.Parameter(torch.ones(8, 8), False)),
        lambda layer: delattr(layer, "bias"),
        lambda layer: layer.register_parameter("more", nn.Parameter(torch.ones(8), False)),
    ):
        with Pair() as pair:
            captured = pair.capture()
            change(pair.model.layers[3].up)
            with pytest.raises(OffloadError, match=r"^layers\.3\.up\..* call refresh\(\)"):
                captured.replay()
            pair.offloaded.refresh()


def test_misses_may_be_errors() -> None:
    with Pair(on_miss="raise") as pair:
        captured = pair.capture()
        assert pair.eager([0])
        before = pair.counts
        with pytest.raises(
            ModuleNotResident, match=r"layers\.0 \(module 0\) arrived, but its slot 0"
        ):
            captured.replay()
        assert pair.counts == before
        assert pair.eager([1, 2, 3, 4])
        assert pair.replayed(captured)


def test_a_graph_that_would_always_miss_is_an_error_where_misses_are() -> None:
    with Pair(on_miss="raise") as pair:
        pair.offloaded.hooks.on_miss = "reload"  # for the run that warms up

        def backwards() -> torch.Tensor:
            pair.offloaded.hooks.on_miss = "raise"
            try:
                return pair.model(pair.inputs, [4, 3, 2, 1, 0])
            except ModuleNotResident:
                pair.offloaded.hooks.on_miss = "reload"
                return pair.model(pair.inputs, [4, 3, 2, 1, 0])

        with pytest.raises(
            OffloadError, match=r"reloads 3 modules in each replay.*'reload' allows"
        ):
            pair.offloaded.capture(backwards)


def test_a_schedule_that_is_not_where_it_began() -> None:
    with Pair(5, 2, "rotating") as pair:
        with pytest.raises(ScheduleError, match=r"rotating repeats after 2 passes, so no graph"):
            pair.capture()
        assert pair.eager()
    with Pair(4, 2, "rotating") as pair:  # here it is
        assert pair.replayed(pair.capture())


def test_a_module_that_writes_into_its_weights() -> None:
    class Writes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = super().forward(x)
            self.weight.mul_(-1)
            return x

    with Pair() as pair:
        pair.offloaded.close()
        layers = [Writes(8, 8).requires_grad_(False) for _ in range(3)]
        plain = copy.deepcopy(layers)
        pair.model.layers, pair.plain.layers = nn.ModuleList(layers), nn.ModuleList(plain)
        with runtime.offload(
            pair.model, list(pair.model.layers), slots=2, policy="chain", device=DEVICE
        ) as pair.offloaded:
            with pytest.raises(
                OffloadError, match=r"layers\.0 writes into its weights while it ru"
            ):
                pair.offloaded.capture(lambda: pair.model(pair.inputs))
            pair.plain(pair._x)  # it warmed up
            assert pair.eager()
            assert pair.eager()


def test_what_it_wrote_in_the_capture_is_kept_nowhere() -> None:
    """It was not done; and its slot holds another module, which must not go into its masters."""

    class Writes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = super().forward(x)
            if pair.offloaded.hooks.interpreter.graph is not None:
                self.weight.mul_(-1)
            return x

    with Pair(3, 2) as pair:
        pair.offloaded.close()
        last = Writes(8, 8).requires_grad_(False)
        kept = last.weight.clone()
        pair.model.layers[2] = last
        layers = list(pair.model.layers)
        with runtime.offload(layers, slots=2, policy="chain", device=DEVICE) as pair.offloaded:
            pair.model.seen = pair.model.seen.to(DEVICE)
            with pytest.raises(
                OffloadError, match=r"modules\[2\] writes into its weights|writes in"
            ):
                pair.offloaded.capture(lambda: pair.model(pair.inputs))
            pair.model(pair.inputs)
            assert torch.equal(last.weight, kept)
            assert pair.counts[2] == 0


def test_a_function_that_runs_nothing_of_ours() -> None:
    with Pair() as pair:
        with pytest.raises(OffloadError, match=r"^the function ran no offloaded module"):
            pair.offloaded.capture(lambda: pair.inputs * 2)
        assert_goes_on(pair)


@pytest.mark.parametrize("error", [ValueError, Stop])
@pytest.mark.parametrize("at", [1, 2])
def test_a_function_that_raises(error: type[BaseException], at: int) -> None:
    """As it warms up, or while it is captured, in the middle of a pass."""
    calls = 0

    def breaks() -> torch.Tensor:
        nonlocal calls
        calls += 1
        x = pair.model.layers[0](pair.inputs)
        if calls == at:
            pair.model.layers[1].register_forward_hook(raises)
        return pair.model.layers[1](x)

    def raises(module: nn.Module, *_: Any) -> None:
        module._forward_hooks.popitem()
        raise error

    with Pair() as pair, pair.offloaded.trace() as trace:
        with pytest.raises(error):
            pair.offloaded.capture(breaks)
        assert calls == at
        assert pair.offloaded.hooks.interpreter.graph is None
        assert_goes_on(pair)
    found = audit(trace)
    assert found.fits, str(found)


def test_what_makes_the_host_wait_is_the_devices_error_and_the_model_goes_on() -> None:
    def reads() -> torch.Tensor:
        x = pair.model(pair.inputs)
        if pair.offloaded.hooks.interpreter.graph is not None:
            x.cpu()
        return x

    with Pair() as pair:
        with pytest.raises(RuntimeError, match="capture"):
            pair.offloaded.capture(reads)
        pair.plain(pair._x)
        assert_goes_on(pair)


@pytest.mark.parametrize("options", [{"pin": False}, {"pin": "4KiB"}], ids=["nothing", "little"])
def test_pageable_memory(options: dict[str, Any]) -> None:
    """No graph can copy from it: said before anything runs. What is never copied may be there."""
    with Pair(**options) as pair:
        with pytest.raises(OffloadError, match=r"^layers\.\d is in pageable memory, from which no"):
            pair.capture()
        assert pair.counts[0] == 0
        assert pair.eager()
    with Pair(2, 2, "chain", **options) as pair:
        assert pair.replayed(pair.capture())


def test_a_tensor_beside_the_layers_that_was_replaced() -> None:
    """The graph reads the one before; eager passes would read the new one."""
    with Pair() as pair:
        captured = pair.capture()
        pair.model.seen = torch.zeros(8, device=DEVICE)
        pair.plain.seen = torch.zeros(8)
        with pytest.raises(OffloadError, match=r"^seen was replaced since graph 0 was captured"):
            captured.replay()
        assert pair.eager()
        assert pair.replayed(pair.capture())


@pytest.mark.parametrize("what", ["a capture", "a replay", "refresh()", "a trace"])
def test_nor_inside_of_a_capture(what: str) -> None:
    def inside() -> torch.Tensor:
        x = pair.model(pair.inputs)
        if pair.offloaded.hooks.interpreter.graph is not None:
            calls[what]()
        return x

    with Pair() as pair:
        other = pair.capture()
        calls: dict[str, Callable[[], object]] = {
            "a capture": pair.capture,
            "a replay": other.replay,
            "refresh()": pair.offloaded.refresh,
            "a trace": lambda: pair.offloaded.trace().__enter__(),
        }
        with pytest.raises(
            OffloadError, match=r"was asked for while graph 1 is captured; do so be"
        ):
            pair.offloaded.capture(inside)
        pair.plain(pair._x)
        assert_goes_on(pair)
        assert pair.replayed(other)


def test_what_an_interrupt_in_a_capture_leaves_unwritten_is_kept_nowhere() -> None:
    """The module that wrote has no hook after it: it was captured, and not done."""

    class Breaks(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if pair.offloaded.hooks.interpreter.graph is not None:
                self.weight.mul_(-1)
                raise KeyboardInterrupt
            return super().forward(x)

    with Pair(3, 2) as pair:
        pair.offloaded.close()
        last = Breaks(8, 8).requires_grad_(False)
        pair.model.layers[2] = last
        kept, layers = last.weight.clone(), list(pair.model.layers)
        with runtime.offload(layers, slots=2, policy="chain", device=DEVICE) as pair.offloaded:
            pair.model.seen = pair.model.seen.to(DEVICE)
            with pytest.raises(KeyboardInterrupt):
                pair.offloaded.capture(lambda: pair.model(pair.inputs))
            pair.model(pair.inputs)
            assert torch.equal(last.weight, kept)


def test_neither_is_begun_inside_a_modules_run() -> None:
    def inside(call: Callable[[], object]) -> str:
        def hook(*_: object) -> None:
            with pytest.raises(OffloadError) as error:
                call()
            said.append(str(error.value))

        said: list[str] = []
        handle = pair.model.layers[1].up.register_forward_pre_hook(hook)
        assert pair.eager()
        handle.remove()
        return said[0]

    with Pair(on_miss="raise") as pair:
        captured = pair.capture()
        during = "was asked for while layers.1 runs; do so between passes"
        assert inside(captured.replay) == f"a replay of graph 0 {during}"
        assert inside(pair.capture) == f"a capture {during}"
        assert pair.replayed(captured)


def test_nor_while_another_thread_runs_a_module() -> None:
    with Pair() as pair:
        captured = pair.capture()
        said: list[str] = []

        def hook(*_: object) -> None:
            def replay() -> None:
                with pytest.raises(OffloadError) as error:
                    captured.replay()
                said.append(str(error.value))

            in_thread(replay)

        handle = pair.model.layers[1].up.register_forward_pre_hook(hook)
        assert pair.eager()
        handle.remove()
        assert "a replay of graph 0 was called in thread" in said[0]
        assert pair.replayed(captured)


def test_any_other_capture_is_refused_with_the_remedy() -> None:
    with Pair() as pair:
        graph, stream = torch.accelerator.Graph(), torch.Stream(device=DEVICE)
        with stream:
            graph.capture_begin()
            with pytest.raises(OffloadError, match=r"with offloaded\.capture\(function\)"):
                pair.model(pair.inputs)
            graph.capture_end()
        assert_goes_on(pair)


def test_a_capture_of_ours_is_none_for_another_offload() -> None:
    """Its hooks run in it as in any other one."""
    with Pair(3, 2) as one, Pair(3, 2) as other:

        def both() -> torch.Tensor:
            return one.model(one.inputs) + other.model(other.inputs)

        with pytest.raises(OffloadError, match=r"an offloaded model is captured into a graph"):
            one.offloaded.capture(both)
        one.plain(one._x)
        other.plain(other._x)
        assert_goes_on(one)
        assert_goes_on(other)


def test_a_device_without_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.accelerator, "Graph")
    with Pair() as pair:
        with pytest.raises(OffloadError, match=r"^simdev:0 has no graphs to capture into; call"):
            pair.capture()
        assert pair.counts[0] == 0
        assert pair.eager()


def test_a_device_types_own_graph_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch.cuda.CUDAGraph and torch.npu.NPUGraph."""

    class Own(torch.accelerator.Graph):  # type: ignore[misc]
        pass

    module = torch.get_device_module("simdev")
    monkeypatch.setattr(module, "SIMDEVGraph", Own, raising=False)
    monkeypatch.delattr(torch.accelerator, "Graph")
    with Pair() as pair:
        captured = pair.capture()
        assert type(captured._taken.device) is Own
        assert pair.replayed(captured)


def test_on_a_cpu_there_are_none() -> None:
    model = Walked(3)
    with runtime.offload(model, slots=2, device="cpu") as offloaded:
        with pytest.raises(OffloadError, match=r"^cpu has no graphs to capture into; call the"):
            offloaded.capture(lambda: model(torch.zeros(3, 8)))
        assert offloaded.report().runs == 0
