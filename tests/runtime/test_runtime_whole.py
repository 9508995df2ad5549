"""static=True: a model compiled whole by inductor gives what the plain one gives, in whatever order
its dependencies allow; and the declarations of the operators are what makes it so.

Differences are those to the plain, eager model, in parts of its largest value: compiled code rounds
otherwise. A wrong weight makes one of far more than ROUNDING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import runtime
from runtime import operators
from runtime.unverified import offload_without_proof
from schedule import OffloadError
from tests.runtime.compiler import COMPILER
from tests.runtime.inductor import ORDERS, Orders
from tests.runtime.whole import WHOLE, whole

pytestmark = COMPILER

ROUNDING = 1e-5
WRONG = 1e-2


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing compiled before or after; no gradients."""
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


Offload = Callable[..., runtime.Offloaded]


def static(*given: Any) -> runtime.Offloaded:
    return runtime.offload(*given, slots=2, on_miss="raise", static=True)


def missing(*given: Any) -> runtime.Offloaded:
    return runtime.offload(*given, slots=2, static=True)


def old_rule(*given: Any) -> runtime.Offloaded:
    """It is wrong for four modules over three slots."""
    options = {"policy": "modular", "output_may_be_wrong": True, "static": True}
    return offload_without_proof(*given, slots=3, **options)


def differences(name: str, backend: Any, offload: Offload = static) -> Iterator[float]:
    """By how much two passes of the offloaded model, compiled whole, differ from the plain one; for
    Orders, in each order."""
    given = whole(name)
    wanted = given.first(given.model(**given.inputs))
    largest = wanted.abs().max().item()
    assert 0.01 < largest < float("inf")
    with offload(given.model, given.layers) as offloaded:
        compiled = torch.compile(given.model, fullgraph=True, backend=backend)
        for order in backend.orders if isinstance(backend, Orders) else ("inductor",):
            if isinstance(backend, Orders):
                backend.order = order
            before = offloaded.report()
            found = [given.first(compiled(**given.inputs)) for _ in range(2)]
            after = offloaded.report()
            if offload is not missing:
                assert after.copies - before.copies == 2 * offloaded.schedule.copies > 0
            assert after.runs - before.runs == 2 * len(given.layers)
            worst = max((one - wanted).abs().max().item() for one in found)
            yield float("inf") if worst != worst else worst / largest
    assert torch.equal(given.first(given.model(**given.inputs)), wanted)


@pytest.mark.parametrize("name", WHOLE)
def test_it_is_right_as_inductor_compiles_it(name: str) -> None:
    (one,) = differences(name, "inductor")
    assert one < ROUNDING


@pytest.mark.parametrize("name", WHOLE)
def test_it_is_right_in_every_order(name: str) -> None:
    backend = Orders()
    found = dict(zip(ORDERS, differences(name, backend), strict=True))
    assert max(found.values()) < ROUNDING, found
    assert len(backend.sizes) == len(ORDERS)


def test_no_cuda_graph_of_the_compiler_takes_the_operators_in() -> None:
    for operator in operators.ARRIVE, operators.DEPART:
        assert torch.Tag.cudagraph_unsafe in operator.tags


def test_with_the_old_rule_it_is_wrong() -> None:
    """Twin: what it reads are the slots, and no guard reloads them."""
    assert max(differences("merged adapter", "eager", old_rule)) > WRONG


# ---- mutants: operators that declare less


@pytest.fixture
def declared(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[torch.library.Library]:
    """The operators declare what the test's parameter says."""
    library = torch.library.Library("ringproof_mutant", "DEF")
    arrive, depart = operators.define(library, request.param)
    monkeypatch.setattr("runtime.static.ARRIVE", arrive)
    monkeypatch.setattr("runtime.static.DEPART", depart)
    yield library
    library._destroy()


def without(*writes: str) -> str:
    """The schema, in which these are not declared as written."""
    schema = operators.SCHEMA
    for one in writes:
        assert one in schema
        schema = schema.replace(one, "")
    return schema


ACTIVATIONS, NO_TOKEN = without("(n!)", "(t!)", "(w!)"), without("(t!)")


@pytest.mark.parametrize("declared", [ACTIVATIONS], indirect=True, ids=["activations"])
@pytest.mark.parametrize(
    ("name", "orders"),
    [
        ("a function of weights", ("bfs", "lpmf", "by chance")),
        ("dequantisation", ("bfs", "by chance")),
        ("weight norm", ("bfs", "by chance")),
        ("merged adapter", ("bfs", "by chance")),
        ("experts", ("bfs", "by chance")),
    ],
)
@pytest.mark.usefixtures("declared")
def test_activations_alone_are_not_enough(name: str, orders: tuple[str, ...]) -> None:
    """Mutant: what is made of weights alone is moved out of the run."""
    found = [*differences(name, Orders(orders))]
    assert min(found) > WRONG, found


@pytest.mark.parametrize("declared", [ACTIVATIONS], indirect=True, ids=["activations"])
@pytest.mark.usefixtures("declared")
def test_nor_is_the_first_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant, as in a leading engine: the second of two streams is moved."""
    tensors = runtime.static._tensors
    monkeypatch.setattr("runtime.static._tensors", lambda values: tensors(values)[:1])
    found = [*differences("two streams", Orders(("bfs", "dfs", "lpmf", "by chance")))]
    assert max(found) > WRONG, found


@pytest.mark.parametrize(
    "declared", [ACTIVATIONS, NO_TOKEN], indirect=True, ids=["activations", "no token"]
)
@pytest.mark.parametrize("order", ["bfs", "dfs", "lpmf", "by chance"])
@pytest.mark.usefixtures("declared")
def test_without_the_token_one_module_runs_inside_another(order: str) -> None:
    """Mutant: nothing orders the modules of two towers. That is an error."""
    with pytest.raises(OffloadError, match="another module, or thread, ran inside the run of"):
        next(differences("two towers", Orders((order,)), missing))
