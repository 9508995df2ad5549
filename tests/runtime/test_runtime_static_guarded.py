"""static=True: what can't be right is an error, and what nothing guards the sanitizer sees."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config

import runtime
from schedule import OffloadError
from tests.runtime.compiler import COMPILER, has_compiler
from tests.runtime.models import Block, Stack, assert_same_values, batches, outputs, same, stack
from tests.runtime.test_runtime_outliving import in_attribute
from tests.runtime.test_runtime_static import (  # noqa: F401, a fixture
    WAYS,
    built,
    close,
    compiled,
    fresh,
)
from tests.runtime.weights import Quantised, Tables, made

COPIES = r"compiled code runs layers\.0 with copies of its weights, not with those in its slot"


class Writing(Block):
    """Turns a weight round in each run."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        self.up.weight.mul_(-1)
        return y


# ---- writes


@pytest.mark.parametrize("way", ["not compiled", "eager"])
def test_what_a_module_writes_into_its_weights_is_kept(way: str) -> None:
    model = built(4, Writing)
    plain = copy.deepcopy(model)
    with runtime.offload(model, slots=2, static=True):
        code = compiled(model, way)
        for _ in range(2):
            assert same(outputs(code, batches(3)), outputs(plain, batches(3)))
            assert_same_values(model.state_dict(), plain.state_dict())
    assert_same_values(model.state_dict(), plain.state_dict())


@COMPILER
def test_inductor_may_not_write_into_them() -> None:
    """Between the operators it has a copy, which it writes back at the end of the graph, where the
    slot may be another module's. Nothing was written, and eager passes go on."""
    model = built(4, Writing)
    plain = copy.deepcopy(model)
    with runtime.offload(model, slots=2, static=True) as offloaded:
        with pytest.raises(OffloadError, match=COPIES):
            outputs(compiled(model, "inductor"), batches(1))
        assert_same_values(model.state_dict(), plain.state_dict())
        offloaded.refresh()
        assert same(outputs(model, batches(2)), outputs(plain, batches(2)))


@COMPILER
def test_without_the_look_at_addresses_it_would_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what was written is lost, or spoils another module."""
    monkeypatch.setattr("runtime.static.StaticHooks._refuse_others", lambda *_: None)
    model = built(4, Writing)
    plain = copy.deepcopy(model)
    with runtime.offload(model, slots=2, static=True):
        code = compiled(model, "inductor")
        assert not close(outputs(code, batches(3)), outputs(plain, batches(3)))


def test_aot_eager_is_refused() -> None:
    """It copies whatever an operator declares as written."""
    model = built()
    with (
        runtime.offload(model, slots=2, static=True),
        pytest.raises(OffloadError, match=r"was compiled by a backend that .* \(use inductor\)"),
    ):
        outputs(compiled(model, "aot_eager"), batches(1))


@pytest.mark.parametrize("way", WAYS)
def test_a_weight_that_is_written_outside_its_run_is_an_error(way: str) -> None:
    """It is the slot that was written. Compiled code counts a write for all that its operators
    declare; that is told from this."""
    model, plain = built(), built()
    with runtime.offload(model, slots=2, static=True) as offloaded:
        code = compiled(model, way)
        outputs(code, batches(3))
        with torch.no_grad():
            model.layers[1].up.weight.add_(1)
        message = r"a weight of layers\.1 was written outside its run, .*: write into model\.state"
        with pytest.raises(OffloadError, match=message):
            outputs(code, batches(1))
        assert close(outputs(code, batches(2)), outputs(plain, batches(2)))
        for each in model, plain:
            each.state_dict()["layers.1.up.weight"].add_(1)
        assert close(outputs(code, batches(2)), outputs(plain, batches(2)))
        assert offloaded.report().misses > 0


def test_one_that_nobody_would_see_any_more_is_said_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = built()
    with runtime.offload(model, slots=2, static=True):
        outputs(model, batches(1))
        assert not caplog.records
        model.layers[1].up.weight.add_(1)
    assert "a weight of layers.1 was written outside its run" in caplog.text


class Replacing(Block):
    """Counts its runs in a buffer, which it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(64, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs = self.runs + 1
        return super().forward(x) + self.runs[0]


def test_a_buffer_that_a_module_replaces_is_kept_or_an_error() -> None:
    """Compiled code puts it there at its end, when the module ran."""
    model, plain = built(3, Replacing), built(3, Replacing)
    with runtime.offload(model, slots=2, static=True) as offloaded:
        assert same(outputs(model, batches(3)), outputs(plain, batches(3)))
        assert_same_values(model.state_dict(), plain.state_dict())
        code = compiled(model, "eager")
        assert same(outputs(code, batches(1)), outputs(plain, batches(1)))
        with pytest.raises(OffloadError, match=r"layers\.0\.runs was replaced"):
            outputs(code, batches(1))
        offloaded.refresh()
        assert_same_values(model.state_dict(), plain.state_dict())


# ---- views


class Giving(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x), self.up.weight.t()


class Reading(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x, view = layer(x)
        return x @ view


class GivingAnObject(Giving):
    def forward(self, x: torch.Tensor) -> SimpleNamespace:
        y, view = super().forward(x)
        return SimpleNamespace(y=y, view=view)


def test_so_is_one_in_the_attribute_of_an_object() -> None:
    layers = [GivingAnObject() for _ in range(2)]
    with (
        torch.no_grad(),
        runtime.offload(layers, slots=1, static=True),
        pytest.raises(OffloadError, match=r"an output of modules\[0\] is a view of its weights"),
    ):
        layers[0](batches(1)[0])


@pytest.mark.parametrize("way", WAYS)
def test_an_output_that_is_a_view_of_a_weight_is_an_error(way: str) -> None:
    model = Reading([Giving() for _ in range(3)]).requires_grad_(False)
    with (
        runtime.offload(model, slots=2, static=True),
        pytest.raises(OffloadError, match=r"an output of layers\.0 is a view of its weights"),
    ):
        outputs(compiled(model, way), batches(1))


class Keeping(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "kept" not in vars(self):
            in_attribute(self, {})
        return super().forward(x)


def test_a_view_that_is_kept_is_seen_by_the_sanitizer_alone() -> None:
    """Weights are always in sight."""
    model = built(3, Keeping)
    with runtime.offload(model, slots=2, static=True) as offloaded:
        wanted = outputs(copy_of(model), batches(1))
        with runtime.sanitize(offloaded):
            assert same(outputs(model, batches(1)), wanted)
            for view in model.layers[1].kept[0]["one"], model.layers[1].up.weight:
                with pytest.raises(OffloadError, match=r"aten\.mm\.default touches slot . through"):
                    batches(1)[0] @ view


def copy_of(model: Stack) -> Stack:
    """The plain model with the values of one that is offloaded."""
    plain = built(len(model.layers), type(model.layers[0]))
    plain.load_state_dict(model.state_dict())
    return plain


def test_compiled_code_reads_them_unseen() -> None:
    """What is left: a weight that is read beside its module's run."""

    class Beside(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) @ self.layers[1].up.weight

    torch.manual_seed(0)
    model = Beside([Block() for _ in range(3)]).requires_grad_(False)
    wanted = outputs(copy.deepcopy(model), batches(1))
    with runtime.offload(model, slots=1, static=True) as offloaded:
        assert not same(outputs(compiled(model, "eager"), batches(1)), wanted)
        code: Any = torch.compile(model, backend="eager")
        for run in model, code:  # torch compiles nothing under it
            with runtime.sanitize(offloaded), pytest.raises(OffloadError, match=r"aten\.mm\.def"):
                outputs(run, batches(1))


# ---- runs


class Outer(Block):
    inner: tuple[nn.Module, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = super().forward(x)
        for inner in self.inner:
            x = inner(x)
        return super().forward(x)


def nested() -> Stack:
    model = built(3, Outer)
    model.layers[2].inner = (model.layers[0],)
    return model


def test_a_module_that_runs_inside_another_one() -> None:
    model, wanted = nested(), outputs(nested(), batches(2))
    with runtime.offload(model, slots=1, static=True):
        assert same(outputs(model, batches(2)), wanted)
        for way in "eager", "inductor" if has_compiler() else "eager":
            message = r"another module, or thread, ran inside the run of layers\.2 in compiled code"
            with pytest.raises(OffloadError, match=message):
                outputs(compiled(model, way), batches(1))
        assert same(outputs(model, batches(2)), wanted)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_run_that_is_cut_short(error: type[BaseException]) -> None:
    model = built()
    wanted = outputs(copy.deepcopy(model), batches(2))

    def fail(*_: object) -> None:
        raise error

    with runtime.offload(model, slots=2, static=True):
        for layer in model.layers:
            handle = layer.down.register_forward_pre_hook(fail)
            with pytest.raises(error):
                outputs(model, batches(1))
            handle.remove()
            code = compiled(model, "eager")
            assert same(outputs(code, batches(2)), wanted)


# ---- kinds of weights, gradients, freezing


@pytest.mark.parametrize("kind", [Quantised, Tables])
def test_weights_of_several_tensors_are_refused(kind: type[nn.Module]) -> None:
    model, before = made(kind), made(kind).state_dict()
    with pytest.raises(OffloadError, match="is made of other tensors or has some in attributes, "):
        runtime.offload(model, slots=1, static=True)
    assert_same_values(model.state_dict(), before)


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_refused(way: str) -> None:
    model = stack(3)
    message = COPIES if way == "inductor" else r"an output of layers\.0 requires grad"
    with (
        runtime.offload(model, slots=2, static=True),
        pytest.raises(OffloadError, match=message),
    ):
        compiled(model, way)(batches(1)[0])


@COMPILER
@pytest.mark.parametrize("how", ["config", "options"])
def test_freezing_is_refused(how: str) -> None:
    options: dict[str, Any] = {"options": {"freezing": True}} if how == "options" else {}
    model = built()
    wanted = outputs(copy.deepcopy(model), batches(1))
    with runtime.offload(model, slots=2, static=True) as offloaded:
        code: Callable[..., Any] = torch.compile(model, fullgraph=True, **options)
        with (
            config.patch(freezing=how == "config"),
            pytest.raises(Exception, match="inductor's freezing would make constants"),
        ):
            outputs(code, batches(1))
        assert offloaded.report().runs == 0
        torch._dynamo.reset()
        assert close(outputs(compiled(model, "inductor"), batches(1)), wanted)
