"""What people really pass: whole numbers of numpy, bare lists, pipelines, scripted models,
certificates of every kind, dtypes of less than a byte."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import runtime
from runtime.unverified import offload_without_proof
from schedule import CertificateError, OffloadError, Ring, RingError
from tests.runtime.models import (
    Block,
    assert_unchanged,
    batches,
    before_run,
    outputs,
    picture,
    same,
    stack,
)

numpy = pytest.importorskip("numpy")


def error_of(model: Any, kind: type[Exception] = OffloadError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        runtime.offload(model, **options)
    assert type(caught.value) is kind
    return str(caught.value)


# ---- numbers


class Whole:
    """A number of one's own."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize(
    "number", [int, numpy.int64, numpy.uint8, numpy.array, torch.tensor, Whole]
)
def test_whole_numbers_of_every_type(number: Callable[[int], Any]) -> None:
    model, x = stack(8), batches(2)
    expected = outputs(stack(8), x)
    options = {"slots": number(2), "group_size": number(4), "num_in_group": number(3)}
    with runtime.offload(model, **options) as offloaded:
        assert offloaded.schedule.ring == Ring(6, 2)
        assert type(offloaded.report().slots) is int
        assert same(outputs(model, x), expected)
    with offload_without_proof(
        model, **options, policy="chain", output_may_be_wrong=True
    ) as offloaded:
        assert offloaded.schedule.ring == Ring(6, 2)


@pytest.mark.parametrize("number", [int, numpy.int64, numpy.array, torch.tensor, Whole])
def test_sizes_of_every_type(number: Callable[[int], Any]) -> None:
    with runtime.offload(stack(3), pin=number(1 << 20), chunk=number(1 << 17)) as offloaded:
        assert offloaded.placement._limit == 1 << 20
        assert offloaded._interpreter._chunk == 1 << 17


NO_NUMBERS = [
    True,
    2.0,
    "2",
    numpy.float64(2),
    numpy.True_,
    torch.tensor(True),
    torch.tensor(2.0),
    numpy.array([2, 2]),
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_whole_number(value: Any) -> None:
    said = error_of(stack(3), RingError, slots=value)
    assert said.startswith(f"slots must be an integer, got {value!r} of type ")
    for field in ("group_size", "num_in_group"):
        said = error_of(stack(3), **{"group_size": 2} | {field: value})
        assert said == f"{field} must be an integer >= 1, got {value!r}"
    for field in ("pin", "chunk"):
        if not isinstance(value, str | bool):  # which are sizes, or yes and no
            said = error_of(stack(3), **{field: value})
            assert said.startswith(f"{field} must be a size in whole bytes or text like '16GiB'")


def test_a_source_that_is_no_function() -> None:
    assert error_of(stack(3), source=3).startswith("source is a int; give a function (full name,")


# ---- bare lists


def scripted() -> torch.jit.ScriptModule:
    with pytest.warns(DeprecationWarning, match="jit.script"):
        return torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)))


BARE: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "a number": (lambda: [3], "modules[0] is a int, not an nn.Module"),
    "nothing": (list, "there is no module to offload: the list of modules is empty"),
    "twice": (lambda: [Block()] * 2, "modules[0], a Block, is listed twice"),
    "a container": (
        lambda: [Block(), nn.ModuleList([Block()])],
        "modules[1], a ModuleList, has no forward",
    ),
    "lazy": (lambda: [nn.LazyLinear(2)], "modules[0].weight is not initialized"),
    "scripted": (lambda: [scripted()], "modules[0], a RecursiveScriptModule, is scripted"),
    "in other hands": (
        lambda: [Block(), nn.DataParallel(Block())],
        "modules[1], a DataParallel, copies weights",
    ),
}


@pytest.mark.parametrize("name", BARE)
def test_a_bare_list_is_refused_in_its_own_words(name: str) -> None:
    make, message = BARE[name]
    assert error_of(make()).startswith(message)


def test_of_a_model_it_is_still_its_layers() -> None:
    model = stack(3)
    assert error_of(model, layers=[3]) == "layers[0] is a int, not an nn.Module"
    assert error_of(model, layers=[model.layers]).startswith("layers[0], a ModuleList, has no for")


# ---- certificates


@pytest.mark.parametrize(
    "given", [5, 1.5, True, [1], b"x", object()], ids=lambda given: type(given).__name__
)
def test_a_certificate_of_another_type(given: Any) -> None:
    assert error_of(stack(3), certificate=given) == (
        f"certificate is a {type(given).__name__}; give a certificate's file, or its data, a dict"
    )


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    def told(given: Any) -> str:
        return error_of(stack(3), CertificateError, certificate=given)

    file = tmp_path / "it.json"
    assert (
        told(file) == f"{file} can't be read: No such file or directory; name a certificate's file"
    )
    assert f"{tmp_path} can't be read: Is a directory" in told(str(tmp_path))
    file.write_text("slots: 2")
    assert told(file).startswith(f"{file} is no certificate: Expecting value")
    for content in ("[]", "5", '"text"', "{}"):
        file.write_text(content)
        assert told(file).startswith("the certificate is refused; not true is: its fields are (")
    said = error_of(stack(3), certificate=' {"certificate": 1}')
    assert said == "certificate is a file's content; give its name, or json.loads(content)"


# ---- pipelines and scripted models


class Pipeline:
    """No module, but has some, as those of diffusers and transformers."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def test_of_a_pipeline_its_parts_are_named_the_largest_first() -> None:
    parts = {f"small_{width}": nn.Linear(width, 500) for width in (100, 400, 300, 200)}
    pipe = Pipeline(scheduler=object(), relu=nn.ReLU(), **parts, transformer=nn.Linear(500, 500))
    assert error_of(pipe) == (
        "model is a Pipeline; give an nn.Module or a list, of a pipeline one of its parts: "
        ".transformer (a Linear, 1.0 MB), .small_400 (a Linear, 0.8 MB), "
        ".small_300 (a Linear, 0.6 MB), .small_200 (a Linear, 0.4 MB)"
    )
    assert error_of(Pipeline(x=1)) == "model is a Pipeline; give an nn.Module or a list"


def test_a_pipeline_of_transformers_has_a_model() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=32, intermediate_size=64, num_attention_heads=4, num_hidden_layers=2,
        image_size=32, patch_size=8,
    )  # fmt: skip
    pipe = transformers.pipeline(
        "image-feature-extraction",
        model=transformers.ViTModel(config).eval(),
        image_processor=transformers.ViTImageProcessor(),
        device="cpu",
    )
    assert "one of its parts: .model (a ViTModel, 99.8 KB" in error_of(pipe)


def test_a_pipeline_of_diffusers_has_a_unet() -> None:
    diffusers = pytest.importorskip("diffusers")
    unet = diffusers.UNet2DModel(
        block_out_channels=(4, 8), down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2, norm_num_groups=2, sample_size=8,
    )  # fmt: skip
    pipe = diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler())
    assert "one of its parts: .unet (a UNet2DModel, 60.8 KB" in error_of(pipe)


@pytest.mark.parametrize("layers", [None, "0", ["*"]])
def test_a_scripted_model(layers: Any) -> None:
    assert error_of(scripted(), layers=layers) == (
        "the model, a RecursiveScriptModule, is scripted, and its weights are out of Python's "
        "reach; offload the module that it was made from"
    )


def test_a_scripted_layer_by_its_pattern() -> None:
    model = nn.Sequential(nn.Linear(3, 3), scripted())
    assert error_of(model, layers="*").startswith("layers[1], a RecursiveScriptModule, is scripted")


# ---- dtypes of less than a byte


def holding(dtype: torch.dtype) -> nn.Sequential:
    """Three layers, each with sixteen bytes of numbers of this type beside its weights."""

    def layer(seed: int) -> nn.Module:
        numbers = torch.arange(seed, seed + 16, dtype=torch.uint8)
        odd = torch.empty(0, dtype=dtype).set_(numbers.untyped_storage(), 0, (16,), (1,))
        made = Block()
        made.odd = nn.Parameter(odd, requires_grad=False)
        return made

    return nn.Sequential(*map(layer, range(3)))


UNCOPIED = ["uint1", "uint2", "uint3", "uint4", "uint5", "uint6", "uint7", "int1", "int4", "int7"]
PACKED = ["float4_e2m1fn_x2", "float8_e8m0fnu", "bits1x8", "bits2x4", "bits4x2", "bits8"]


def raw(layer: nn.Module) -> bytes:
    return bytes(layer.odd.untyped_storage())[:16]


@pytest.mark.parametrize("name", PACKED)
def test_packed_dtypes_are_moved_bit_for_bit(name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip("this torch has no such dtype")
    model, seen = holding(getattr(torch, name)), list[bytes]()
    for layer in model:  # from within the layer's run
        before_run(layer.up, lambda layer=layer: seen.append(raw(layer)))
    before = [raw(layer) for layer in model]
    with runtime.offload(model, slots=2) as offloaded:
        outputs(model, batches(2))
        assert offloaded.report().bytes_offloaded == sum(
            sum(p.numel() * p.element_size() for p in Block().parameters()) + 16 for _ in range(3)
        )
    assert seen == before * 2
    assert [raw(layer) for layer in model] == before == [bytes(range(i, i + 16)) for i in range(3)]


@pytest.mark.parametrize("name", UNCOPIED)
def test_integers_of_less_than_a_byte_are_refused_by_name(name: str) -> None:
    if not hasattr(torch, name):
        pytest.skip("this torch has no such dtype")
    model = holding(getattr(torch, name))
    before, values = dict(model.named_parameters()), [raw(layer) for layer in model]
    message = f"parameter 0.odd has dtype torch.{name}, which torch can't copy to other memory; "
    assert error_of(model).startswith(message)
    assert all(now is before[key] for key, now in model.named_parameters())
    assert [raw(layer) for layer in model] == values


@pytest.mark.filterwarnings("ignore")
def test_the_old_quantised_dtypes_are_refused_by_name() -> None:
    model = stack(3)
    before = picture(model)
    model.layers[1].register_buffer(
        "odd", torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8), persistent=False
    )
    message = re.escape("buffer layers.1.odd has dtype torch.qint8, which torch can't copy")
    with pytest.raises(OffloadError, match=message):
        runtime.offload(model)
    assert_unchanged(model, before)
