"""By default the hooks are closed to Dynamo. Under inductor too compiled models and layers are
right, with a break at each module's border, one graph for equal modules, and nothing compiled anew
after the first pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config

import runtime
from runtime.layout import MARK
from tests.runtime import caches
from tests.runtime.compiler import COMPILER
from tests.runtime.inductor import ORDERS
from tests.runtime.models import Stack, batches, outputs, same, stack
from tests.runtime.test_runtime_compile import only_marked
from tests.runtime.test_runtime_static import built, close
from tests.runtime.whole import Dequantised

assert ORDERS  # its import is half of inductor's
pytestmark = COMPILER


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


Compile = Callable[[Stack], Any]


def whole(model: Stack) -> Any:
    return torch.compile(model)


def by_layer(model: Stack) -> Any:
    for layer in model.layers:
        layer.compile()
    return model


def in_place(model: Stack) -> Any:
    model.compile()
    return model


WAYS = [whole, by_layer, in_place]


@pytest.mark.parametrize("compile_", WAYS)
def test_equal_modules_are_one_graph_that_is_not_compiled_again(compile_: Compile) -> None:
    model = built(4)
    wanted = outputs(copy.deepcopy(model), batches(3))
    with runtime.offload(model, slots=2, on_miss="raise") as offloaded:
        code = compile_(model)
        found = outputs(code, batches(1))
        assert counters["stats"]["unique_graphs"] == 1
        with torch._dynamo.config.patch(error_on_recompile=True):
            assert close([*found, *outputs(code, batches(3))[1:]], wanted)
        assert offloaded.report().copies == 4 * offloaded.schedule.copies > 0


def test_hooks_that_are_traced_are_graphs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the guard can't be compiled, so that they are not lost; but what can be of a hook is,
    and anew for each state of the schedule."""
    monkeypatch.setattr("runtime.hooks._closed_to_dynamo", only_marked)
    model = built(4)
    with runtime.offload(model, slots=2):
        outputs(whole(model), batches(1))
    assert counters["stats"]["unique_graphs"] > 1


def lost(hook: Callable[..., None]) -> Callable[..., None]:
    """What becomes of a plain hook in a graph: it is traced once, and that is all."""

    def traced(*given: Any) -> None:
        if not torch.compiler.is_compiling():
            hook(*given)

    setattr(traced, MARK, True)
    return traced


def test_hooks_that_are_traced_away_pass_the_slots_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: no module is bound, loaded or missed. On a CPU it reads its host masters, which are
    right; a device would fail, or be wrong. What is seen is that no module ran from a slot."""
    monkeypatch.setattr("runtime.hooks._closed_to_dynamo", lost)
    model = built(4)
    with runtime.offload(model, slots=2, on_miss="raise") as offloaded:
        code: Any = torch.compile(model, fullgraph=True)
        outputs(code, batches(2))
        assert offloaded.report().runs == 0


@pytest.mark.parametrize("static", [False, True])
def test_it_may_be_compiled_before_it_is_offloaded(static: bool) -> None:
    """The compiler's caches are reset: it looks at no hook again."""
    model = built()
    wanted = outputs(copy.deepcopy(model), batches(2))
    code: Any = torch.compile(model)
    assert close(outputs(code, batches(2)), wanted)
    with runtime.offload(model, slots=2, on_miss="raise", static=static) as offloaded:
        assert close(outputs(code, batches(2)), wanted)
        assert offloaded.report().runs == 6
    assert close(outputs(code, batches(2)), wanted)


@pytest.mark.parametrize("static", [False, True])
def test_without_that_it_would_run_on_without_hooks(
    static: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin."""
    model = built()
    code: Any = torch.compile(model, backend="eager")
    outputs(code, batches(2))
    monkeypatch.setattr("torch.compiler.reset", lambda: None)
    with runtime.offload(model, slots=2, static=static) as offloaded:
        outputs(code, batches(2))
        assert offloaded.report().runs == 0


# ---- generate


def compiled_for_generate(fullgraph: bool) -> Any:
    transformers = pytest.importorskip("transformers")
    chosen = transformers.CompileConfig(fullgraph=fullgraph, mode="default")
    chosen._compile_all_devices = True  # it would leave a CPU alone
    return chosen


def ask(model: nn.Module, **options: Any) -> torch.Tensor:
    tokens: torch.Tensor = model.generate(
        input_ids=caches.PROMPT,
        attention_mask=torch.ones_like(caches.PROMPT),
        max_new_tokens=caches.TOKENS,
        do_sample=False,
        cache_implementation="static",
        **options,
    )
    return tokens


@pytest.mark.parametrize("static", [False, True])
def test_generate_compiles_by_itself_with_a_static_cache(static: bool) -> None:
    """Its own compilation; with static=True in one graph a token."""
    model = copy.deepcopy(caches.built("Qwen3")).requires_grad_(False)
    wanted = ask(model, disable_compile=True)
    with (
        runtime.offload(model, slots=2, on_miss="raise", static=static) as offloaded,
        config.patch(fallback_by_default=True),  # operators are calls, without a compiler of C++
    ):
        counters.clear()
        tokens = ask(model, compile_config=compiled_for_generate(static))
        assert torch.equal(tokens, wanted)
        assert counters["stats"]["unique_graphs"] >= 1
        report = offloaded.report()
        assert report.runs == 3 * caches.TOKENS
        assert report.copies == caches.TOKENS * offloaded.schedule.copies > 0


# ---- freezing


def dequantising() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Dequantised() for _ in range(3))).requires_grad_(False)


@pytest.mark.parametrize("reset", [False, True])
def test_freezing_is_refused_when_the_module_is_compiled(reset: bool) -> None:
    """Also where the compiler was reset since the model was wrapped."""
    model = dequantising()
    x = torch.randn(2, 16)
    with torch.no_grad(), runtime.offload(model, list(model), slots=2) as offloaded:
        wanted = model(x)
        if reset:
            torch._dynamo.reset()
        code: Any = torch.compile(model)
        with (
            config.patch(freezing=True),
            pytest.raises(Exception, match=r"inductor's freezing .* set torch\._inductor\.config"),
        ):
            code(x)
        assert torch.allclose(code(x), wanted, atol=1e-5)
        with config.patch(freezing=True):
            assert torch.equal(model(x), wanted)  # nothing is compiled
        assert offloaded.report().copies > 0


def test_frozen_weights_would_not_see_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin."""
    monkeypatch.setattr("runtime.hooks.watch", lambda _: None)
    monkeypatch.setattr("runtime.hooks.check_outliving", lambda *_: None)  # which would see it too
    model = dequantising()
    x = torch.randn(2, 16)
    with torch.no_grad(), runtime.offload(model, list(model), slots=2):
        code: Any = torch.compile(model)
        with config.patch(freezing=True):
            before = code(x)
            model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})
            assert torch.equal(code(x), before)


def test_a_model_beside_it_may_be_frozen() -> None:
    model, other = built(), stack(2)
    with runtime.offload(model, slots=2), config.patch(freezing=True):
        outputs(model, batches(1))
        wanted = outputs(copy.deepcopy(other), batches(1))
        assert close(outputs(torch.compile(other), batches(1)), wanted)  # type: ignore[arg-type]
    assert same(outputs(model, batches(1)), outputs(built(), batches(1)))
