"""What a module weighs without some of its parts is what the costs say, whichever are kept."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from itertools import chain, combinations
from typing import Any

import pytest
import torch
from torch import nn

from runtime.layout import lay_out
from runtime.parts import device_name, modules_of, require_costs_of, resident
from runtime.placement import laid_out
from runtime.select import keeping, select
from schedule.costs import Costs, Link, Module, Part, Workload
from schedule.errors import CostsError
from tests.runtime.models import WIDTH, stack
from tests.runtime.weights import Scaled

CPU = torch.device("cpu")


class Odd(nn.Module):
    """Parameters of so many bytes."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        for at, size in enumerate(sizes):
            content = torch.zeros(size, dtype=torch.uint8)
            self.register_parameter(f"p{at}", nn.Parameter(content, requires_grad=False))

    def forward(self) -> None:
        """Never called."""


def costed(module: nn.Module) -> Module:
    (found,) = modules_of([lay_out(module, "m", frozenset())])
    return found


def subsets(parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    numbers = range(len(parts) + 1)
    return list(chain.from_iterable(combinations(parts, number) for number in numbers))


EDGES = [1, 240, 248, 249, 255, 256, 257, 496, 512]


# Broken: the last part always one that can be kept, and its fixed bytes what is left.
@pytest.mark.parametrize("last", EDGES)
def test_a_refill_is_shorter_by_the_parts_that_are_kept(last: int) -> None:
    drawn = random.Random(last)
    for number in range(4):
        module = Odd([*(drawn.choice(EDGES) for _ in range(number)), last])
        costs = costed(module)
        assert costs.size == lay_out(module, "m", frozenset()).size
        for kept in subsets(costs.parts):
            stay = frozenset(id(getattr(module, part.name)) for part in kept)
            real = lay_out(module, "m", stay).size
            left = costs.size - sum(part.size for part in kept)
            if kept and kept[-1].name == f"p{number}":  # the last number may fit behind another
                assert left - 256 <= real <= left
            else:
                assert real == left


def test_only_the_last_part_may_go_with_the_numbers() -> None:
    assert costed(Odd([10, 20, 256])) == Module(
        "m", (Part("p0", 256), Part("p1", 256), Part("p2", 256)), 512
    )
    assert costed(Odd([10, 20, 248])) == Module("m", (Part("p0", 256), Part("p1", 256)), 512)
    assert costed(Odd([10, 20, 249])).parts[-1] == Part("p2", 256)


def test_what_changes_when_it_moves_is_no_part() -> None:
    module = nn.Linear(64, 64, bias=False)
    assert [part.name for part in costed(module).parts] == ["weight"]
    module.weight = nn.Parameter(Scaled.of(module.weight.data), requires_grad=False)
    assert costed(module).parts == ()
    module.weight = nn.Parameter(torch.zeros(64, 64))
    module.weight.scale = torch.ones(64)  # type: ignore[attr-defined]
    assert costed(module).parts == ()


def test_what_has_gaps_is_no_part() -> None:
    """The device would have it without them, and give it back so."""
    module = nn.Linear(64, 64, bias=False)
    module.weight = nn.Parameter(torch.zeros(64, 128)[:, ::2])
    assert costed(module).parts == ()
    module.weight = nn.Parameter(torch.zeros(64, 64).t())
    assert [part.name for part in costed(module).parts] == ["weight"]


def test_what_is_tied_within_a_module_is_one_part() -> None:
    module = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False))
    module[1].weight = module[0].weight
    assert costed(module).parts == (Part("0.weight", 64 * 64 * 4),)


# ---- what is kept


def test_kept_parts_stay_and_the_order_is_settled() -> None:
    model = stack(3)
    found = select(model)
    assert found.found
    kept = keeping(found, ["layers.1.up.weight"])
    assert not kept.found
    assert kept.stay == {id(model.layers[1].up.weight)}
    assert resident(kept) == resident(found) + WIDTH * WIDTH * 4
    assert [layout.size for layout in laid_out(kept)] == [1280, 1024, 1280]


def test_a_module_may_keep_more_than_it_gives_away() -> None:
    model = stack(3)
    names = ["layers.1.up.weight", "layers.1.up.bias", "layers.1.down.weight"]
    layouts = laid_out(keeping(select(model), names))
    assert [len(layout.items) for layout in layouts] == [4, 1, 4]


# ---- costs of another model


def costs_for(model: nn.Module, **changed: Any) -> Costs:
    selection = select(model)
    modules = modules_of(laid_out(selection))
    workload = Workload("decode", (1,) * len(modules), (0,) * (len(modules) + 1))
    made = Costs(
        *(modules, (workload,), Link(10**9), resident(selection), "Stack 123"),
        *(device_name(CPU), torch.__version__),
    )
    return replace(made, **changed)


def with_module(costs: Costs, at: int, **changed: Any) -> Costs:
    modules = list(costs.modules)
    modules[at] = replace(modules[at], **changed)
    return replace(costs, modules=tuple(modules))


def refused(costs: Costs, model: nn.Module) -> str:
    selection = select(model)
    with pytest.raises(CostsError) as error:
        require_costs_of(costs, selection, modules_of(laid_out(selection)), CPU)
    text = str(error.value)
    assert text.endswith(
        ": the costs are of another model, Stack 123; measure this one: python -m runtime profile, "
        "or runtime.profile"
    )
    return text.partition(": the costs are")[0]


def test_costs_of_this_model_pass(caplog: pytest.LogCaptureFixture) -> None:
    selection = select(stack(3))
    costs = costs_for(stack(3, seed=1))
    require_costs_of(costs, selection, modules_of(laid_out(selection)), CPU)
    assert caplog.records == []


def test_the_first_field_that_differs_is_said() -> None:
    model = stack(3)
    costs = costs_for(model)
    weight, *others = costs.modules[1].parts
    assert refused(costs_for(stack(4)), model) == "modules[3]: layers.3, which no module here has"
    assert refused(costs_for(stack(2)), model) == "modules[2]: layers.2, which the costs lack"
    assert refused(with_module(costs, 1, name="layers.7"), model) == (
        "modules[1].name: layers.7, where this model has layers.1"
    )
    larger = with_module(costs, 1, parts=(replace(weight, size=512), *others))
    assert refused(larger, model) == (
        "modules[1].parts[0]: up.weight, 512 bytes, where layers.1 has up.weight, 256 bytes"
    )
    fewer = with_module(costs, 1, parts=tuple(costs.modules[1].parts[:-1]))
    assert refused(fewer, model) == (
        "modules[1].parts[2]: none, where layers.1 has down.weight, 256 bytes"
    )
    assert refused(with_module(costs, 2, fixed=8), model) == (
        "modules[2].fixed: 8 bytes, where layers.2 has 512"
    )
    assert refused(replace(costs, resident=7), model) == (
        f"resident: 7 bytes, where this model has {costs.resident} that stay on the device"
    )


@pytest.mark.parametrize(("field", "value"), [("device", "cuda, H100"), ("torch", "2.9.0")])
def test_costs_of_another_machine_are_a_warning(
    field: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    selection = select(stack(3))
    costs = costs_for(stack(3), **{field: value})
    with caplog.at_level(logging.WARNING, "ringproof.runtime"):
        require_costs_of(costs, selection, modules_of(laid_out(selection)), CPU)
    (record,) = caplog.records
    assert f"the costs were measured elsewhere: {field} '{value}'" in record.getMessage()
    require_costs_of(replace(costs, **{field: ""}), selection, costs.modules, CPU)
    assert len(caplog.records) == 1  # what is not said is nothing to compare
