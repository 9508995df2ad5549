"""Every bad input has its own error, which names what was given and what to do; and the model is
untouched afterwards.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from schedule import (
    OffloadError,
    Policy,
    PolicyError,
    Refill,
    Ring,
    RingError,
    Schedule,
    ScheduleViolation,
    policies,
    verify,
)
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

N = 5
Made = tuple[Any, dict[str, Any]]
"""What is offloaded, and with which options."""


def refused(model: nn.Module, kind: type[Exception], message: str, **options: Any) -> None:
    """Offloading raises this error, and the model is as before and can still be offloaded."""
    before = picture(model)
    with pytest.raises(kind, match=message) as caught:
        runtime.offload(model, **options)
    assert type(caught.value) is kind
    assert_unchanged(model, before)


# ---- sizes, policies, options


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (0, "slots must be at least 1, got 0"),
        (-1, "slots must be at least 1, got -1"),
        (True, "slots must be an integer, got True of type bool; pass int"),
        ("2", "slots must be an integer, got '2' of type str; pass int"),
        (2.0, r"slots must be an integer, got 2\.0 of type float; pass int"),
    ],
)
def test_slots_that_are_no_size(slots: Any, message: str) -> None:
    refused(stack(N), RingError, message, slots=slots)


def raises(*_: int) -> int:
    raise ZeroDivisionError("planned")


def always(value: Any) -> Callable[..., Any]:
    return lambda *_: value


POLICIES: list[tuple[Any, str]] = [
    ("no_such", "no policy is called 'no_such'; choose one of modular, .*, or give pkg.module:fu"),
    ("", "no policy is called ''; choose one of"),
    ("no_such_package:rule", "importing no_such_package failed .*run from the directory"),
    ("math:no_such", "math was imported but has no 'no_such'"),
    (":rule", "':rule' is not of the form pkg.module:function"),
    ("math:", "'math:' is not of the form pkg.module:function"),
    ("math:pi", r"a policy is a function \(index, slots, modules\) .* got 3\.14"),
    (lambda index, slots: index + slots, r"can't be called with \(index, slots, modules\)"),
    (raises, r"raises\(0, 2, 5\) raised ZeroDivisionError: planned"),
    (always(1.5), "always.* a float; return an integer, or None"),
    (always("0"), "always.* a str; return an integer, or None"),
    (
        always(True),
        "always.* True.* a bool; return an integer, or None",
    ),
    (always(N), r"always.* 5.* no module; return 0 \.\. 4, or None"),
    (always(-1), r"always.* -1.* no module; return 0 \.\. 4, or None"),
    (int, r"a policy is a function .* got <class 'int'>"),
    (5, r"a policy is a function .* got 5"),
    (Policy("off", always(7)), "policy off gives step 0 the slot 7 in Ring"),
]


@pytest.mark.parametrize(
    ("policy", "message"), POLICIES, ids=[str(at) for at in range(len(POLICIES))]
)
def test_policies_that_are_none(policy: Any, message: str) -> None:
    refused(stack(N), PolicyError, message, policy=policy, slots=2)


def test_a_subclass_of_policy() -> None:
    """What it changes is not what is checked."""

    class Mine(Policy):
        pass

    message = "Mine is a subclass of Policy; give a Policy made of functions"
    refused(stack(N), PolicyError, message, policy=Mine("mine", always(0)))


def test_a_policy_that_needs_more_slots() -> None:
    message = "policy double_buffer needs at least 2 slots, got 1; .*single_buffer"
    refused(stack(N), PolicyError, message, policy="double_buffer", slots=1)


@pytest.mark.parametrize("value", ["x", "off", "RELOAD", None, True])
def test_on_miss_that_is_none(value: Any) -> None:
    message = re.escape(f"on_miss must be 'reload' or 'raise', got {value!r}")
    refused(stack(N), OffloadError, message, on_miss=value)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="needs a machine without accelerator")
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda", "device cuda was asked for, but .*accelerator is none; leave device out, or pass"),
        ("meta", "device meta was asked for, but .*accelerator is none"),
        (torch.device("cuda", 1), "device cuda:1 was asked for"),
        ("nonsense", "device 'nonsense' is no device: "),
        (0, "device 0 is no device: "),
    ],
)
def test_devices_that_are_not_there(device: Any, message: str) -> None:
    refused(stack(N), OffloadError, message, device=device)


@pytest.mark.parametrize("device", [[], 1.5, object()])
def test_devices_of_the_wrong_type(device: Any) -> None:
    refused(stack(N), OffloadError, "device", device=device)


# ---- schedules


def test_an_unsafe_schedule() -> None:
    for modules, slots in ((3, 2), (5, 2), (7, 3)):
        model = stack(modules)
        before = picture(model)
        with pytest.raises(ScheduleViolation, match="identity: pass 0: module") as caught:
            runtime.offload(model, slots=slots, policy="modular")
        assert {v.property for v in caught.value.violations} >= {"ownership", "identity"}
        assert_unchanged(model, before)


def test_an_unsafe_function_of_a_user() -> None:
    def mine(index: int, slots: int, modules: int) -> int:
        return (index + slots) % modules

    refused(stack(N), ScheduleViolation, "ownership: .* replaces module 4", policy=mine, slots=2)


def test_a_schedule_for_another_ring() -> None:
    for ring in (Ring(N, 3), Ring(N + 1, 2), Ring(N - 1, 2)):
        message = re.escape(f"the schedule is for {ring}, but this offload is {Ring(N, 2)}")
        refused(stack(N), OffloadError, message, policy=policies.balanced(ring), slots=2)


def two_passes() -> Schedule:
    """One module that changes its slot every pass: safe, with a period of two passes."""
    return Schedule(
        ring=Ring(1, 2),
        policy="rotating",
        slot_of=(0, 1),
        preload=(Refill(0, 0), Refill(1, 0)),
        enter=((), ()),
        before=((), ()),
        after=((), ()),
        leave=((), ()),
    )


def test_a_period_of_two_passes() -> None:
    """Is none: it is executed."""
    verify(two_passes())
    model, inputs = stack(1), batches(5)
    wanted = outputs(stack(1), inputs)
    with runtime.offload(model, slots=2, policy=two_passes()) as offloaded:
        assert same(outputs(model, inputs), wanted)
        report = offloaded.report()
    assert (report.preloaded, report.copies, report.misses) == (2, 0, 0)


# ---- models and layers


def model_with(layer: nn.Module | None = None) -> Stack:
    """Three blocks; the last one may be replaced."""
    torch.manual_seed(0)
    return Stack([Block(), Block(), layer or Block()])


class Nothing(nn.Module):
    """No parameters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Odd(nn.Parameter):
    """A subclass of Parameter."""


class OddTensor(torch.Tensor):
    """A subclass of Tensor."""


def holding(parameter: nn.Parameter) -> nn.Module:
    module = Nothing()
    module.register_parameter("odd", parameter)
    return module


def frozen(tensor: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def chosen(pick: Callable[[Stack], Any]) -> Callable[[], Made]:
    def make() -> Made:
        model = model_with()
        return model, {"layers": pick(model)}

    return make


def containing(make: Callable[[], nn.Module]) -> Callable[[], Made]:
    return lambda: (model_with(make()), {})


MODELS: dict[str, tuple[Callable[[], Made], str]] = {
    "an empty list": (lambda: ([], {}), "no module to offload: the list of modules is empty"),
    "empty layers": (chosen(lambda _: []), "no module to offload: the list of layers is empty"),
    "an empty ModuleList": (lambda: (nn.ModuleList(), {}), "the list of modules is empty"),
    "None": (lambda: (None, {}), "model is a NoneType; give an nn.Module or a list"),
    "a number": (lambda: (5, {}), "model is a int; give an nn.Module or a list"),
    "a name": (lambda: ("layers", {}), "model is a str; give an nn.Module or a list"),
    "a list of names": (lambda: (["a"], {}), r"modules\[0\] is a str, not an nn\.Module"),
    "names as layers": (
        chosen(lambda m: [m.layers[0], "layer.1"]),
        r"layers='layer\.1' matches no module of Stack .*; did you mean 'layers\.1'",
    ),
    "a class": (chosen(always([Block])), r"layers\[0\] is a type, not an nn\.Module"),
    "a tensor": (
        chosen(lambda m: [m.head.weight]),
        r"layers\[0\] is a Parameter, not an nn\.Modul",
    ),
    "a list and layers": (
        lambda: ([Block()], {"layers": [Block()]}),
        "layers goes with a model; a list of modules is all of its layers",
    ),
    "a module twice": (
        chosen(lambda m: [m.layers[0], m.layers[1], m.layers[0]]),
        r"layers\[0\], a Block, is listed twice; a module that runs several times .* listed once",
    ),
    "one inside another": (
        chosen(lambda m: [m.layers[0], m.layers[0].up]),
        r"layers\[1\], a Linear, lies inside another module of the list",
    ),
    "one around another": (
        chosen(lambda m: [m.layers[1].down, m.layers[0], m.layers[1]]),
        r"layers\[0\], a Linear, lies inside another module of the list",
    ),
    "a container that never runs": (
        chosen(lambda m: [m.layers]),
        r"layers\[0\], a ModuleList, has no forward and so never runs; give the modules in it",
    ),
    "a foreign layer": (
        chosen(lambda m: [m.layers[0], Block()]),
        r"layers\[1\], a Block, is no part of the model",
    ),
    "the model itself": (
        chosen(lambda m: [m]),
        "the model itself can't be one of its layers; give",
    ),
    "no parameters": (
        chosen(lambda m: [m.layers[0], m.layers.register_module("x", Nothing()) or m.layers.x]),
        r"module layers\.x has no parameters, so nothing can be offloaded; leave it out",
    ),
    "no parameters, in a list": (
        lambda: ([Block(), nn.ReLU()], {}),
        r"module modules\[1\] has no parameters, so nothing can be offloaded; leave it out",
    ),
    "no layers to be found": (
        lambda: (nn.Bilinear(2, 2, 2), {}),
        r"no layers were found in Bilinear: .*; pass layers=\[\.\.\.\], in execution order",
    ),
    "only layers without parameters": (
        lambda: (nn.Sequential(nn.ReLU(), nn.Dropout()), {}),
        "no layers were found in Sequential",
    ),
    "a Parameter subclass": (
        containing(lambda: holding(Odd(torch.ones(3)))),
        r"parameter layers\.2\.odd is a Odd over a Tensor; only plain .* leave its module out",
    ),
    "a Tensor subclass": (
        containing(lambda: holding(nn.Parameter(torch.ones(3).as_subclass(OddTensor)))),
        r"parameter layers\.2\.odd is a \w+ over a OddTensor; only plain",
    ),
    "a sparse parameter": (
        containing(lambda: holding(nn.Parameter(torch.eye(3).to_sparse()))),
        r"parameter layers\.2\.odd has layout torch\.sparse_coo.* leave its module out",
    ),
    "an expanded parameter": (
        containing(lambda: holding(frozen(torch.ones(3, 1).expand(3, 4)))),
        r"parameter layers\.2\.odd overlaps itself .*; make it contiguous before offloading",
    ),
    "a meta parameter": (
        containing(lambda: nn.Linear(WIDTH, WIDTH, device="meta")),
        r"layers\.2\.weight, .* is on the meta device .* runtime\.load\(model, checkpoint\)",
    ),
    "a lazy module": (
        containing(lambda: nn.Sequential(nn.LazyLinear(WIDTH), nn.Linear(WIDTH, WIDTH))),
        r"layers\[2\]\.0\.weight is not initialized; run the model once before",
    ),
}


def skeleton(made: Any) -> list[Any]:
    """Objects and hooks of modules, also where values can't be read."""
    modules = made if isinstance(made, list) else [made]
    found: list[Any] = []
    for module in modules:
        if isinstance(module, nn.Module):
            found += [hook_count(module), [(id(p), p.device) for p in module.parameters()]]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_models_and_layers_that_cannot_be_offloaded(name: str) -> None:
    make, message = MODELS[name]
    made, options = make()
    before = skeleton(made)
    with pytest.raises(OffloadError, match=message):
        runtime.offload(made, slots=2, **options)
    assert skeleton(made) == before


UNREADABLE = {"a meta parameter", "a lazy module", "a sparse parameter", "a Tensor subclass"}


@pytest.mark.parametrize("name", sorted(MODELS.keys() - UNREADABLE))
def test_values_and_layouts_are_untouched_too(name: str) -> None:
    make, message = MODELS[name]
    made, options = make()
    if isinstance(made, nn.Module):
        refused(made, OffloadError, message, **options)


def test_only_shared_parameters() -> None:
    first, second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    second.weight, second.bias = first.weight, first.bias
    message = "module 0 has only parameters shared with other modules, so nothing .*; leave it out"
    refused(nn.Sequential(first, second, Block()), OffloadError, message, slots=2)


@pytest.mark.parametrize("pick", [lambda m: m.layers[0].up, always(5)])
def test_layers_that_are_no_list(pick: Callable[[Stack], Any]) -> None:
    model = model_with()
    refused(model, OffloadError, "layers", layers=pick(model))


def test_a_rest_on_the_meta_device() -> None:
    model = model_with()
    model.head = nn.Linear(WIDTH, WIDTH, device="meta")
    before = skeleton(model)
    with pytest.raises(
        OffloadError,
        match=r"^head\.weight, of shape \(8, 8\), is on the meta device and has no values",
    ):
        runtime.offload(model)
    assert skeleton(model) == before


def test_parameters_made_in_inference_mode() -> None:
    """They have no version counter, by which an update would be seen."""
    with torch.inference_mode():
        model = stack(3)
        before = picture(model)
    message = (
        r"parameter layers\.0\.up\.weight was made under torch\.inference_mode .*outside of it"
    )
    with pytest.raises(OffloadError, match=message):
        runtime.offload(model, slots=2)
    assert_unchanged(model, before)


# Mended: an AttributeError from torch; without the look at forward, a RuntimeError from torch
# ("register_forward_pre_hook is not supported"), and the layers before it keep their hooks.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit.script
def test_scripted_layers() -> None:
    model = model_with(torch.jit.script(nn.Linear(WIDTH, WIDTH)))
    before = skeleton(model)
    with pytest.raises(OffloadError, match=r"layers\[2\], a RecursiveScriptModule, is scripted"):
        runtime.offload(model)
    assert skeleton(model) == before


# ---- offloading twice


def test_offloading_twice() -> None:
    model = stack(3)
    wanted = outputs(stack(3), batches(1))
    with runtime.offload(model, slots=2) as offloaded:
        hooks = hook_count(model)
        for again in (model, model.layers, [model.layers[2]], [model.layers[1], Block()]):
            with pytest.raises(OffloadError, match=r"is offloaded already; close\(\) that offload"):
                runtime.offload(again, slots=2)
        assert hook_count(model) == hooks
        assert same(outputs(model, batches(1)), wanted)
        assert offloaded.report().misses == 0
    with runtime.offload(model, slots=2):
        assert same(outputs(model, batches(1)), wanted)


def test_the_one_already_offloaded_is_named() -> None:
    layers = list(stack(3).layers)
    with runtime.offload(layers[2:], slots=1):
        with pytest.raises(OffloadError, match=r"^modules\[2\]\.up\.weight is offloaded already"):
            runtime.offload(layers, slots=1)
        assert sum(map(hook_count, layers[:2])) == 0


PARTS: list[Callable[[Stack], list[nn.Module]]] = [
    lambda model: [layer.up for layer in model.layers],  # inside
    lambda model: [nn.Sequential(layer) for layer in model.layers],  # around
]


@pytest.mark.parametrize("pick", PARTS, ids=["parts of the modules", "what contains them"])
def test_offloading_twice_in_other_pieces(pick: Callable[[Stack], list[nn.Module]]) -> None:
    model = stack(3)
    with (
        runtime.offload(model, slots=2),
        pytest.raises(OffloadError, match="is offloaded already"),
    ):
        runtime.offload(pick(model), slots=2)


def test_offloading_a_parameter_that_another_offloaded_model_shares() -> None:
    """Its memory can be in one host block only."""
    first, second = stack(3, seed=1), stack(3, seed=2)
    second.layers[2].up.weight = first.layers[0].up.weight
    before = picture(second)
    with (
        runtime.offload(first, slots=2),
        pytest.raises(OffloadError, match=r"^layers\.2\.up\.weight is offloaded already"),
    ):
        runtime.offload(second, slots=2)
    assert_unchanged(second, before)
    with runtime.offload(second, slots=2):
        assert same(outputs(first, batches(1)), outputs(stack(3, seed=1), batches(1)))


# Mended: the mark is an attribute of the Parameter, and is pickled with it.
def test_a_parameter_saved_while_offloaded_can_be_offloaded_elsewhere() -> None:
    with runtime.offload(stack(1).layers, slots=1) as offloaded:
        (layer,) = offloaded.selection.modules
        saved = pickle.dumps(layer.up.weight)
    model = stack(3)
    model.layers[1].up.weight = pickle.loads(saved)
    with runtime.offload(model, slots=2):
        outputs(model, batches(1))


# ---- without proof


@pytest.mark.parametrize("word", [False, None, 1, "yes"])
def test_without_proof_only_in_words_of_the_callers_own(word: Any) -> None:
    model = stack(3)
    before = picture(model)
    with pytest.raises(
        OffloadError, match=r"say output_may_be_wrong=True, or use runtime\.offload"
    ):
        offload_without_proof(model, slots=2, policy="modular", output_may_be_wrong=word)
    assert_unchanged(model, before)


def test_without_proof_the_word_has_no_default() -> None:
    with pytest.raises(TypeError, match="output_may_be_wrong"):
        offload_without_proof(stack(3), slots=2, policy="modular")  # type: ignore[call-arg]


def test_without_proof_other_bad_input_is_still_bad() -> None:
    model = stack(3)
    before = picture(model)
    for options, kind in (
        ({"slots": 0, "policy": "modular"}, RingError),
        ({"slots": 2, "policy": "no_such"}, PolicyError),
        ({"slots": 2, "policy": policies.chain(Ring(4, 2))}, OffloadError),
        ({"slots": 2, "policy": "modular", "device": "nonsense"}, OffloadError),
    ):
        with pytest.raises(kind):
            offload_without_proof(model, output_may_be_wrong=True, **options)
    assert_unchanged(model, before)


def test_without_proof_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    for slots, guard, text in (
        (2, False, "offloading by policy modular, which is VIOLATED, guard OFF: the output may be"),
        (3, True, "offloading by policy modular, which is safe, guard on: the output may be wrong"),
    ):
        caplog.clear()
        with offload_without_proof(
            stack(3), slots=slots, policy="modular", output_may_be_wrong=True, guard=guard
        ):
            (record,) = caplog.records
            assert (record.name, record.levelname) == ("ringproof.runtime", "WARNING")
            assert text in record.getMessage()


# ---- what is good input, though it looks odd


GOOD: list[Any] = [
    "chain",
    "schedule.policy:slot_local_target",
    "schedule.policy:balanced",
    policies.double_buffer,
    policies.slot_local_target,
    policies.balanced(Ring(N, 2)),
    dataclasses.replace(policies.chain(Ring(N, 2)), policy="another name"),
    verify(policies.chain(Ring(N, 2))),
    Policy("mine", always(0)),
    lambda index, slots, modules: index + slots if index + slots < modules else index % slots,
]


@pytest.mark.parametrize("policy", GOOD, ids=[str(at) for at in range(len(GOOD))])
def test_every_form_of_policy_is_accepted(policy: Any) -> None:
    model = stack(N)
    with runtime.offload(model, slots=2, policy=policy) as offloaded:
        assert same(outputs(model, batches(2)), outputs(stack(N), batches(2)))
        assert offloaded.report().misses == 0
        assert offloaded.report().copies == 2 * offloaded.schedule.copies
