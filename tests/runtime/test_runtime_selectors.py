"""Layers by name patterns, in groups, kept; parameters by filters; each bad selector an error."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.select import select
from runtime.selectors import grouped, matching
from runtime.unverified import offload_without_proof
from schedule.errors import OffloadError
from tests.runtime.models import Block, Stack, assert_unchanged, batches, outputs, picture, same

LAYERS = tuple(f"layers.{i}" for i in range(12))


class Expert(nn.Module):
    """A block with two experts inside, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Block(), Block()])
        self.gate = Block()
        self.register_buffer("bias", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(x) + self.experts[0](x) * self.bias + self.experts[1](x)


@pytest.fixture
def model() -> Stack:
    torch.manual_seed(0)
    return Stack(Block() for _ in range(12)).eval()


@pytest.fixture
def mixture() -> Stack:
    torch.manual_seed(0)
    return Stack(Expert() for _ in range(3)).eval()


# ---- names of modules


PATTERNS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "one": ("layers.*", LAYERS),
    "of a list": ("layers", LAYERS),
    "a name": ("layers.3", LAYERS[3:4]),
    "several, in their order": (["layers.1?", "layers.[3-4]"], LAYERS[10:] + LAYERS[3:5]),
    "each module once": (["layers.2", "layers.?"], ("layers.2", *LAYERS[:2], *LAYERS[3:10])),
    "across dots": ("*.up", tuple(f"{name}.up" for name in LAYERS)),
    "a generator": ((name for name in ["layers.0", "head"]), ("layers.0", "head")),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_name_patterns(model: Stack, name: str) -> None:
    layers, wanted = PATTERNS[name]
    assert select(model, layers).names == wanted


def test_names_and_modules_together(model: Stack) -> None:
    chosen = select(model, [model.head, "layers.1?", model.layers[0]])
    assert chosen.names == ("head", "layers.10", "layers.11", "layers.0")
    assert chosen.modules == (model.head, *model.layers[10:], model.layers[0])


def test_what_has_no_weights_matches_no_pattern() -> None:
    root = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "b": nn.ReLU()})
    assert select(root, "a.*").names == ("a.0",)
    with pytest.raises(OffloadError, match="layers='b' matches no module of ModuleDict"):
        select(root, "b")


# ---- groups


def test_groups_are_those_of_vllm() -> None:
    """Its documentation's example, and the case of vllm-ascend's report."""
    assert grouped(24, 8, 2) == [6, 7, 14, 15, 22, 23]
    assert grouped(28, 8, 1) == grouped(28, 8, None) == [7, 15, 23]
    assert grouped(5, None, None) == grouped(5, 1, 1) == grouped(5, 3, 3) == [0, 1, 2, 3, 4]


def test_groups_count_all_layers_and_kept_ones_are_then_left_out(model: Stack) -> None:
    """The others run from the device, and the answer is the same."""
    plain = outputs(copy.deepcopy(model), batches(2))
    options: dict[str, Any] = {"group_size": 4, "num_in_group": 2, "keep": ["layers.7", "*.10"]}
    with runtime.offload(model, slots=2, policy="chain", **options) as offloaded:
        assert offloaded.selection.names == ("layers.2", "layers.3", "layers.6", "layers.11")
        assert same(outputs(model, batches(2)), plain)
        report = offloaded.report()
        assert (report.runs, report.misses) == (8, 0)
        assert (report.copies, offloaded.schedule.copies) == (8, 4)
        weights = sum(p.numel() * 4 for p in model.layers[0].parameters())
        assert report.bytes_offloaded == 4 * weights
        assert report.bytes_whole - report.bytes_rest == 4 * weights
    with offload_without_proof(
        model, slots=2, policy="chain", output_may_be_wrong=True, **options
    ) as offloaded:
        assert offloaded.selection.names == ("layers.2", "layers.3", "layers.6", "layers.11")


# ---- kept layers


def test_kept_layers(model: Stack) -> None:
    wanted = LAYERS[2:11]
    for keep in (
        ["layers.[01]", "layers.11"],
        [*model.layers[:2], "layers.11"],
        nn.ModuleList([model.layers[0], model.layers[1], model.layers[11]]),
    ):
        assert select(model, keep=keep).names == wanted
    assert select(model, keep=model.layers[0]).names == LAYERS[1:]
    assert select(model, keep="layers.0").names == LAYERS[1:]
    assert select(model, keep=[]).names == LAYERS
    assert select(list(model.layers), keep="modules[0]").modules == tuple(model.layers[1:])


def test_a_kept_layer_may_be_one_that_cannot_be_offloaded(model: Stack) -> None:
    model.layers[3] = nn.LazyLinear(8)
    with pytest.raises(OffloadError, match=r"layers\[3\]\.weight is not initialized"):
        select(model, "layers.*", keep="layers.0")
    assert len(select(model, [*model.layers], keep="layers.3").names) == 11


# ---- names of parameters


NAMES = ["mlp.experts.w2_weight", "mlp.experts.w2_weight_scale", "mlp.gate.weight", "norm.weight"]


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["experts"], NAMES[:2]),
        (["experts.w2_weight"], NAMES[:1]),
        (["mlp.experts", "norm"], [*NAMES[:2], NAMES[3]]),
        (["weight"], NAMES[2:]),
        (["w2*"], NAMES[:2]),
        (["*"], NAMES),
        (["expert"], []),
        (["w2"], []),
        (["mlp.weight"], []),
        ([""], []),
    ],
)
def test_a_filter_is_a_run_of_segments(filters: list[str], wanted: list[str]) -> None:
    """With vLLM's own examples."""
    assert matching(NAMES, filters) == set(wanted)


def test_of_filtered_modules_the_rest_stays_on_the_device(mixture: Stack) -> None:
    plain, before = outputs(copy.deepcopy(mixture), batches(2)), picture(mixture)
    with runtime.offload(mixture, slots=1, parameters="experts") as offloaded:
        assert same(outputs(mixture, batches(2)), plain)
        report, layouts = offloaded.report(), offloaded.arena.layouts
        expert = [f"experts.{i}.{part}.{kind}" for i in (0, 1) for part in ("up", "down")
                  for kind in ("weight", "bias")]  # fmt: skip
        assert [[item.path for item in layout.items] for layout in layouts] == [expert] * 3
        assert report.bytes_offloaded == 3 * 2 * sum(p.numel() * 4 for p in Block().parameters())
        assert (report.misses, report.stay) == (0, ())
        assert offloaded.selection.filters == ("experts",)
        kept = {id(t) for m in mixture.layers for t in (*m.gate.parameters(), m.bias)}
        assert offloaded.selection.stay == kept
    assert_unchanged(mixture, before)


def test_a_filter_finds_a_weight_under_each_of_its_names(mixture: Stack) -> None:
    for layer in mixture.layers:
        layer.gate.down = layer.experts[1].down
    for filters in (["gate.down"], ["experts.1.down"]):
        selection = select(mixture, parameters=filters)
        tied = mixture.layers[0].gate.down
        assert not {id(p) for p in tied.parameters()} & selection.stay
        assert id(mixture.layers[0].gate.up.weight) in selection.stay


def test_without_a_filter_nothing_stays(mixture: Stack) -> None:
    selection = select(mixture)
    assert (selection.stay, selection.filters) == (frozenset(), ())


# ---- what matches nothing, and what is no selector


FIRST_WORDS = (
    r"layers\.0, layers\.1, layers\.2, layers\.3, \.\.\., layers\.9, layers\.10, layers\.11"
)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a pattern": (
        {"layers": "layer.*"},
        r"layers='layer\.\*' matches no module of Stack that has weights; did you mean "
        r"'layers\.\*'.*it has 'layers\.\*' \(12 x Block, 6\.9 KB\)$",
    ),
    "one pattern of several": ({"layers": ["head", "tail"]}, "layers='tail' matches no module"),
    "a number": ({"layers": 3}, "layers is a int; give a list of modules or name patterns"),
    "overlapping patterns": (
        {"layers": ["layers.0.up", "layers.*"]},
        r"layers\[0\], a Linear, lies inside another module of the list",
    ),
    "a kept pattern": (
        {"keep": "layer.3"},
        rf"keep='layer\.3' matches none of the 12 layers; did you mean .*; they are {FIRST_WORDS}",
    ),
    "a kept module": (
        {"keep": [nn.Linear(1, 1)]},
        rf"keep has a Linear that is none of the 12 layers; they are {FIRST_WORDS}",
    ),
    "all kept": ({"keep": "layers.*"}, "keep has all 12 layers, so nothing would be offloaded"),
    "all of the groups kept": (
        {"keep": ["layers.5", "layers.11"], "group_size": 6},
        "keep has all layers that group_size takes",
    ),
    "a kept number": ({"keep": 3}, "keep is a int; give modules or name patterns"),
    "kept numbers": ({"keep": [3]}, "keep has a int; give modules or name patterns"),
    "a group of none": ({"group_size": 0}, "group_size must be an integer >= 1, got 0"),
    "half a group": ({"group_size": 2.5}, r"group_size must be an integer >= 1, got 2\.5"),
    "a true group": ({"group_size": True}, "group_size must be an integer >= 1, got True"),
    "none in a group": (
        {"group_size": 2, "num_in_group": 0},
        "num_in_group must be an integer >= 1, got 0",
    ),
    "more than the group": (
        {"group_size": 2, "num_in_group": 3},
        "num_in_group is 3, but group_size is only 2",
    ),
    "no group": ({"num_in_group": 1}, "num_in_group goes with group_size; give both"),
    "a group that is too large": (
        {"group_size": 16, "num_in_group": 2},
        "takes none of 12 layers: the first would be number 14, counted from 0",
    ),
    "a filter": (
        {"parameters": ["experts", "w"]},
        r"parameters=\['experts', 'w'\] matches nothing in layers\.0, which has up\.weight, "
        r"up\.bias, down\.weight, down\.bias$",
    ),
    "an empty filter": ({"parameters": []}, "parameters is an empty list, which matches nothing"),
    "a filter that is a number": ({"parameters": 3}, "parameters is a int; give a name pattern"),
    "a filter of numbers": ({"parameters": [3]}, "parameters has a int; give name patterns"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("door", ["offload", "offload_without_proof"])
def test_bad_selectors_change_nothing(model: Stack, name: str, door: str) -> None:
    options, message = BAD[name]
    before = picture(model)
    doors: dict[str, Callable[..., object]] = {
        "offload": runtime.offload,
        "offload_without_proof": lambda *args, **options: offload_without_proof(
            *args, policy="chain", output_may_be_wrong=True, **options
        ),
    }
    with pytest.raises(OffloadError, match=message):
        doors[door](model, slots=2, **options)
    assert_unchanged(model, before)


def test_a_filter_that_some_modules_lack_says_which_to_keep(mixture: Stack) -> None:
    """vLLM leaves such modules on the device in silence."""
    mixture.layers.insert(0, Block())
    mixture.layers[2].experts = nn.ModuleList()
    with pytest.raises(OffloadError) as caught:
        select(mixture, parameters="experts")
    assert str(caught.value) == (
        "parameters=['experts'] matches nothing in layers.0, which has up.weight, up.bias, "
        "down.weight, down.bias; keep=['layers.0', 'layers.2'] leaves the modules without a match "
        "on the device"
    )
    keep = ["layers.0", "layers.2"]
    assert select(mixture, parameters="experts", keep=keep).names == ("layers.1", "layers.3")
    with pytest.raises(OffloadError, match=r"which has experts\.\*\.up\.weight, experts\.\*\.up"):
        select(mixture, parameters="w", keep=keep)


def test_the_largest_lists_come_first_in_an_error() -> None:
    root = nn.ModuleDict({f"l{i}": nn.ModuleList([Block(8 * i)]) for i in range(1, 9)})
    root["none"] = nn.ModuleList([nn.ReLU()])
    root["mixed"] = nn.Sequential(Block(900), Block(900), nn.Linear(8, 1))
    with pytest.raises(OffloadError) as caught:
        select(root, "nothing like it")
    listed = str(caught.value).split("it has ")[1]
    assert listed.startswith("'mixed.*' (2 x Block + 1 x Linear, 0.1 MB), 'l8.*' (1 x Block, 4.4")
    assert listed.count(" x Block, ") == 5
    with pytest.raises(OffloadError, match=r"it has no lists of modules$"):
        select(nn.ModuleDict({"a": Block()}), "b")
