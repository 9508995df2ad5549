"""Which modules are offloaded: found in the model, or given; in which order; and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn

import runtime
from runtime.select import select
from schedule import OffloadError
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    assert_unchanged,
    batches,
    hook_count,
    outputs,
    picture,
    same,
    stack,
)


class Wide(Block):
    """A block of another class."""


class Mixed(nn.Module):
    """Two lists of two kinds of blocks, of which the second takes more bytes; and a single one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(Block() for _ in range(4))
        self.second = nn.ModuleList(Wide(40) for _ in range(3))
        self.single = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (*self.first, *self.second, self.single):
            x = layer(x)
        return x


def names(model: nn.Module, layers: Iterable[nn.Module] | None = None) -> tuple[str, ...]:
    return select(model, layers).names


def mixed(**attributes: object) -> Mixed:
    torch.manual_seed(0)
    model = Mixed().eval()
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


FIRST = tuple(f"first.{i}" for i in range(4))
SECOND = tuple(f"second.{i}" for i in range(3))

FOUND: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "the largest list in bytes": ({}, SECOND),
    "_no_split_modules": ({"_no_split_modules": ["Block"]}, (*FIRST, "single")),
    "a string": ({"_no_split_modules": "Block"}, (*FIRST, "single")),
    "several kinds": ({"_no_split_modules": {"Block", "Wide"}}, (*FIRST, *SECOND, "single")),
    "in the order in which they hang": (
        {"_no_split_modules": ("Wide", "Block")},
        (*FIRST, *SECOND, "single"),
    ),
    "_repeated_blocks": ({"_repeated_blocks": ["Wide"]}, SECOND),
    "_no_split_modules first": (
        {"_no_split_modules": ["Block"], "_repeated_blocks": ["Wide"]},
        (*FIRST, "single"),
    ),
    "_repeated_blocks if the first finds none": (
        {"_no_split_modules": ["NoSuchBlock"], "_repeated_blocks": ["Block"]},
        (*FIRST, "single"),
    ),
    "the list if neither finds any": (
        {"_no_split_modules": ["NoSuchBlock"], "_repeated_blocks": []},
        SECOND,
    ),
    "None is as good as nothing": ({"_no_split_modules": None, "_repeated_blocks": None}, SECOND),
}


@pytest.mark.parametrize("name", FOUND)
def test_layers_are_found(name: str) -> None:
    attributes, wanted = FOUND[name]
    model = mixed(**attributes)
    assert names(model) == wanted
    expected = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert offloaded.selection.names == wanted
        assert same(outputs(model, batches(2)), expected)
        report = offloaded.report()
        assert (report.modules, report.misses) == (len(wanted), 0)
        hooked = {name for name, m in model.named_modules() if m._forward_pre_hooks}
        assert hooked == set(wanted)


def test_only_the_outermost_blocks_are_taken() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    model = nn.ModuleDict({"a": Outer(), "b": nn.ModuleDict({"c": Outer()}), "d": Block()})
    model._no_split_modules = ["Outer", "Block"]
    assert names(model) == ("a", "b.c", "d")


def test_blocks_and_list_members_without_parameters_are_left_out() -> None:
    model = nn.ModuleDict({"layers": nn.ModuleList([Block(), nn.ReLU(), Block(), nn.Identity()])})
    assert names(model) == ("layers.0", "layers.2")
    model._no_split_modules = ["ReLU"]
    assert names(model) == ("layers.0", "layers.2")


def test_without_a_list_the_largest_sequential_is_taken() -> None:
    small = nn.Sequential(Block(), nn.ReLU(), Block())
    large = nn.Sequential(Wide(40), Wide(40))
    model = nn.ModuleDict({"small": small, "large": large})
    assert names(model) == ("large.0", "large.1")
    assert names(small) == ("0", "2")
    model["list"] = nn.ModuleList([nn.Linear(2, 2)])
    assert names(model) == ("list.0",)


def test_given_layers_are_taken_in_the_given_order() -> None:
    model = mixed()
    given = [model.single, model.second[2], model.first[1].up]
    for layers in (given, tuple(given), iter(given), nn.ModuleList(given), (m for m in given)):
        assert names(model, layers) == ("single", "second.2", "first.1.up")


def test_the_execution_order_of_a_model_can_be_another_one() -> None:
    """In the order in which they hang every pass misses; in the given one, none."""

    class Backwards(Stack):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in reversed(self.layers):
                x = layer(x)
            return x

    torch.manual_seed(0)
    model = Backwards([Block() for _ in range(5)]).eval()
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        assert offloaded.report().misses > 0
    with runtime.offload(
        model, reversed(model.layers), slots=2, policy="chain", on_miss="raise"
    ) as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        assert offloaded.selection.names == tuple(f"layers.{i}" for i in (4, 3, 2, 1, 0))


LISTS: list[Callable[[Stack], Iterable[nn.Module]]] = [
    lambda model: model.layers,
    lambda model: list(model.layers),
    lambda model: tuple(model.layers),
    lambda model: iter(model.layers),
]


@pytest.mark.parametrize("pick", LISTS, ids=["ModuleList", "list", "tuple", "iterator"])
def test_a_bare_list_leaves_everything_else_alone(
    pick: Callable[[Stack], Iterable[nn.Module]],
) -> None:
    model = stack(4)
    before = picture(model)
    wanted = outputs(copy.deepcopy(model), batches(2))
    rest = [(id(p), p.data_ptr()) for p in (*model.head.parameters(), *model.embed.parameters())]
    with runtime.offload(pick(model), slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        assert offloaded.selection.names == tuple(f"modules[{i}]" for i in range(4))
        assert offloaded.selection.root is None
        report = offloaded.report()
        assert report.misses == 0
        assert report.bytes_rest == 0
        assert report.bytes_whole == 4 * 2 * (WIDTH + 1) * WIDTH * 4
        assert [
            (id(p), p.data_ptr()) for p in (*model.head.parameters(), *model.embed.parameters())
        ] == rest
        assert hook_count(model.head) == hook_count(model.embed) == 0
        assert not model._forward_pre_hooks
    assert_unchanged(model, before)


def test_a_slice_of_a_model() -> None:
    model = stack(6)
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model.layers[2:5], slots=2, policy="chain") as offloaded:
        assert same(outputs(model, batches(2)), wanted)
        assert (offloaded.report().runs, offloaded.report().misses) == (6, 0)


def test_modules_whose_truth_value_is_false() -> None:
    """A container of length 0 is a module as any other."""

    class Hollow(Stack):
        def __len__(self) -> int:
            return 0

    torch.manual_seed(0)
    model = Hollow([Block() for _ in range(3)]).eval()
    wanted = outputs(copy.deepcopy(model), batches(2))
    with runtime.offload(model, slots=2) as offloaded:
        assert offloaded.selection.root is model
        assert same(outputs(model, batches(2)), wanted)


# ---- containers given as layers


class Named(Stack):
    """Its blocks hang in a ModuleDict, under the names of other modules."""

    def __init__(self) -> None:
        super().__init__([])
        self.blocks = nn.ModuleDict({"head": Block(), "embed": Block()})


def test_of_a_module_dict_its_modules_are_meant_and_not_their_names() -> None:
    model = Named()
    assert names(model, model.blocks) == ("blocks.head", "blocks.embed")
    left = select(model, [*model.blocks.values(), model.head], keep=model.blocks)
    assert left.names == ("head",)


@pytest.mark.parametrize("make", [lambda: nn.Sequential(Block(), Block()), Block])
def test_one_module_as_layers_may_mean_two_things(make: Callable[[], nn.Module]) -> None:
    given = make()
    message = (
        f"layers is a {type(given).__name__}, one module: give layers=[it] for one layer, or "
        "layers=list(it) for its members"
    )
    with pytest.raises(OffloadError) as caught:
        select(nn.ModuleDict({"it": given}), given)
    assert str(caught.value) == message


def test_a_dictionary_is_no_list() -> None:
    model = stack(2)
    with pytest.raises(OffloadError, match="layers is a dict; give a list of modules or name pat"):
        select(model, {"layers.0": model.layers[0]})
    with pytest.raises(OffloadError, match=r"model is a dict; give an nn\.Module or a list$"):
        select({"layers.0": model.layers[0]})
