"""static=True: weights stay bound to their slots, and hooks are operators. What people do around
the passes is as right as without it, or an error; eager, and compiled whole.

Dynamo's backend "eager" runs the graph as it was captured; inductor makes it functional, and puts
the writes back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.layout import BOUND
from schedule import ModuleNotResident, OffloadError, Refill, Ring, Schedule
from schedule.audit import audit
from tests.runtime import inductor
from tests.runtime.compiler import COMPILER
from tests.runtime.models import (
    Block,
    Stack,
    Walked,
    assert_unchanged,
    batches,
    outputs,
    picture,
    same,
    stack,
)

WAYS = ["not compiled", "eager", pytest.param("inductor", marks=COMPILER)]
assert inductor.ORDERS  # its import is half of inductor's


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: nn.Module, way: str) -> nn.Module:
    """The model in one graph, or as it is."""
    if way == "not compiled":
        return model
    whole: nn.Module = torch.compile(model, fullgraph=True, backend=way)  # type: ignore[assignment]
    return whole


def close(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """But for the rounding of compiled code."""
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(first, second, strict=True))


def built(modules: int = 3, kind: type[Block] = Block) -> Stack:
    torch.manual_seed(0)
    return Stack([kind() for _ in range(modules)]).eval().requires_grad_(False)


# ---- what is right


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", ["chain", "single_buffer", "restart"])
def test_it_copies_and_gives_what_it_does_without(way: str, policy: str) -> None:
    model, slots = built(), 1 if policy == "single_buffer" else 2
    before, wanted = picture(model), outputs(copy.deepcopy(model), batches(3))
    with runtime.offload(
        model, slots=slots, policy=policy, on_miss="raise", static=True
    ) as offloaded:
        assert close(outputs(compiled(model, way), batches(3)), wanted)
        report = offloaded.report()
        assert report.runs == 9
        assert report.copies == 3 * offloaded.schedule.copies > 0
        with offloaded.trace() as trace:
            outputs(compiled(model, way), batches(2))
        assert audit(trace).fits
    assert_unchanged(model, before)
    assert not any(BOUND in vars(module) for module in model.modules())


@pytest.mark.parametrize("policy", ["chain", "restart"])
def test_the_model_may_be_a_part_of_what_is_compiled(policy: str) -> None:
    """Its own hooks, if it had any, would be traced then."""
    model = built()
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy=policy, on_miss="raise", static=True):
        code: Any = torch.compile(lambda x: model(x), fullgraph=True, backend="eager")
        assert same(outputs(code, batches(2)), wanted)


@pytest.mark.parametrize("way", WAYS)
def test_inference_mode(way: str) -> None:
    model = built()
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, on_miss="raise", static=True), torch.inference_mode():
        code = compiled(model, way)
        assert close([code(x.clone()) for x in batches(2)], wanted)


@pytest.mark.parametrize("way", WAYS)
def test_modules_that_run_twice_are_skipped_or_go_backwards(way: str) -> None:
    model = Walked(list(built(4).layers))
    for order in [0, 1, 2, 3], [0, 0, 2, 3, 1], [3, 2, 1, 0]:
        wanted = model(batches(1)[0], order)
        with runtime.offload(model, slots=2, static=True) as offloaded:
            code = compiled(model, way)
            for _ in range(2):
                assert close([code(batches(1)[0], order)], [wanted])
            assert (offloaded.report().misses > 0) == (order != [0, 1, 2, 3])


def test_equal_layers_are_one_graph_each_with_its_number() -> None:
    """The operators get the number as a tensor: as a constant it would be the first layer's."""
    model = built(5)
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, on_miss="raise", static=True):
        for layer in model.layers:
            layer.compile(backend="eager", fullgraph=True)
        with torch._dynamo.config.patch(error_on_recompile=True):
            assert same(outputs(model, batches(2)), wanted)


@pytest.mark.parametrize("way", WAYS)
def test_parameters_are_the_slots_and_a_state_dict_is_not(way: str) -> None:
    model = built()
    saved = copy.deepcopy(model.state_dict())
    with runtime.offload(model, slots=2, static=True) as offloaded:
        outputs(compiled(model, way), batches(1))
        ranges = [(s.data_ptr(), s.data_ptr() + s.numel()) for s in offloaded.arena.slots]
        for layer in model.layers:
            for parameter in layer.parameters():
                assert any(a <= parameter.data_ptr() < b for a, b in ranges)
        for state in model.state_dict(), model.state_dict(keep_vars=True):
            assert all(torch.equal(state[name], saved[name]) for name in saved)
            assert not any(a <= t.data_ptr() < b for t in state.values() for a, b in ranges)
        with pytest.raises(OffloadError, match=r"layers\.0 is offloaded already"):
            runtime.offload(model, slots=2)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_loading_is_seen_by_the_next_pass(way: str, assign: bool) -> None:
    model = built()
    plain = copy.deepcopy(model)
    with runtime.offload(model, slots=2, static=True):
        code = compiled(model, way)
        for _ in range(2):
            outputs(code, batches(1))
            new = {name: value + 0.1 for name, value in plain.state_dict().items()}
            plain.load_state_dict(new)
            model.load_state_dict({k: v.clone() for k, v in new.items()}, assign=assign)
            with torch._dynamo.config.patch(error_on_recompile=not assign):
                assert close(outputs(code, batches(2)), outputs(plain, batches(2)))
            part = {name: value * 2 for name, value in plain.layers[1].state_dict().items()}
            for each in plain, model:
                each.layers[1].load_state_dict(copy.deepcopy(part), assign=assign)
            assert close(outputs(code, batches(2)), outputs(plain, batches(2)))
    assert same(outputs(model, batches(2)), outputs(plain, batches(2)))


@pytest.mark.parametrize("way", WAYS)
def test_a_weight_that_is_replaced_is_an_error_until_refresh(way: str) -> None:
    model = built()
    plain = copy.deepcopy(model)
    with runtime.offload(model, slots=2, static=True) as offloaded:
        code = compiled(model, way)
        outputs(code, batches(1))
        for each in model, plain:
            each.layers[1].up.weight = nn.Parameter(torch.ones(8, 8), requires_grad=False)
        with pytest.raises(OffloadError, match=r"layers\.1\.up\.weight was replaced"):
            outputs(code, batches(1))
        offloaded.refresh()
        assert close(outputs(code, batches(2)), outputs(plain, batches(2)))
        assert torch.equal(model.state_dict()["layers.1.up.weight"], torch.ones(8, 8))
    assert same(outputs(model, batches(2)), outputs(plain, batches(2)))


def test_requires_grad_is_set_where_it_is_seen() -> None:
    model = stack(2)
    with runtime.offload(model, slots=1, static=True):
        with pytest.raises(OffloadError, match="requires grad"):
            model(batches(1)[0])
        model.requires_grad_(False)
        assert not model(batches(1)[0]).requires_grad
    assert not any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("way", WAYS)
def test_what_was_compiled_runs_on_after_close_and_another_offload(way: str) -> None:
    model = built()
    wanted = outputs(copy.deepcopy(model), batches(2))
    code = compiled(model, way)
    assert close(outputs(code, batches(2)), wanted)
    for static in True, False, True:
        with runtime.offload(model, slots=2, on_miss="raise", static=static) as offloaded:
            if static or way == "not compiled":
                assert close(outputs(code, batches(2)), wanted)
                assert offloaded.report().runs == 6
        assert close(outputs(code, batches(2)), wanted)
        assert offloaded.report().runs in (0, 6)


def test_it_may_end_within_a_pass_and_while_it_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built()
    before, wanted = picture(model), outputs(copy.deepcopy(model), batches(1))
    offloaded = runtime.offload(model, slots=2, static=True)
    handle = model.layers[1].up.register_forward_pre_hook(lambda *_: offloaded.close())
    assert same(outputs(model, batches(1)), wanted)
    handle.remove()
    assert_unchanged(model, before)
    with monkeypatch.context() as patched:
        patched.setattr("runtime.around.Around.register", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runtime.offload(model, slots=2, static=True)
    assert_unchanged(model, before)
    assert not any(BOUND in vars(module) for module in model.modules())


# ---- what is refused


def test_a_schedule_in_which_a_module_has_several_slots_is_refused() -> None:
    model = built(5)
    before = picture(model)
    with pytest.raises(
        OffloadError,
        match=r"'rotating' runs layers\.0 \(module 0\) from slots \[0, 1\]: choose another policy, "
        r"or with 'rotating' a number of slots that divides the 5 modules",
    ):
        runtime.offload(model, slots=2, policy="rotating", static=True)
    assert_unchanged(model, before)
    model = built(4)
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy="rotating", on_miss="raise", static=True):
        assert close(outputs(compiled(model, "eager"), batches(2)), wanted)


TWO_PASSES = Schedule(
    ring=Ring(2, 1),
    policy="two passes",
    slot_of=(0, 0, 0, 0),
    preload=(Refill(0, 0),),
    before=((), (), (), ()),
    after=((Refill(0, 1),), (), (Refill(0, 1),), (Refill(0, 0),)),
    enter=((), ()),
    leave=((Refill(0, 0),), ()),
)


@pytest.mark.parametrize("way", WAYS)
def test_a_period_of_two_passes_with_refills_on_leave(way: str) -> None:
    model = built(2)
    wanted = outputs(copy.deepcopy(model), batches(4))
    with runtime.offload(model, policy=TWO_PASSES, on_miss="raise", static=True) as offloaded:
        assert close(outputs(compiled(model, way), batches(4)), wanted)
        assert offloaded.report().copies == 8
        with offloaded.trace() as trace:
            outputs(compiled(model, way), batches(3))
        assert audit(trace).fits
        boundaries = [issued.boundary for issued in trace.issued]
    assert any("leave" in str(one) for one in boundaries)


@pytest.mark.parametrize("way", WAYS)
def test_another_order_is_not_adopted_but_said(way: str, caplog: pytest.LogCaptureFixture) -> None:
    class Backwards(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in reversed(self.layers):
                x = layer(x)
            return x

    torch.manual_seed(0)
    model = Backwards([Block() for _ in range(4)]).requires_grad_(False)
    wanted = outputs(copy.deepcopy(model), batches(3))
    with runtime.offload(model, slots=2, static=True) as offloaded:
        assert close(outputs(compiled(model, way), batches(3)), wanted)
        assert offloaded.selection.names == tuple(f"layers.{i}" for i in range(4))
        assert offloaded.recorded_order() == offloaded.selection.names[::-1]
        assert offloaded.report().misses > 0
    assert "ran in another order than that of layers" in caplog.text


@pytest.mark.parametrize("way", WAYS)
def test_a_miss_is_an_error_through_compiled_code(way: str) -> None:
    model = Walked(list(built(3).layers))
    with runtime.offload(model, slots=1, on_miss="raise", static=True):
        code: Callable[..., Any] = compiled(model, way)
        with pytest.raises(ModuleNotResident, match=r"layers\.2 \(module 2\) arrived, but"):
            code(batches(1)[0], [0, 2])
        wanted = model(batches(1)[0], [1, 2])
        assert close([code(batches(1)[0], [0, 1, 2])], [model(batches(1)[0], [0, 1, 2])])
        assert wanted.isfinite().all()
