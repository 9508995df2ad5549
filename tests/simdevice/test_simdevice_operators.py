"""Every operator that torch has samples for gives the CPU's bits on the device."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch.utils._pytree import tree_leaves, tree_map

from tests.simdevice.device import SimDevice
from tests.simdevice.helpers import DEVICE

SAMPLES = 3
"""An operator; more take longer and found nothing."""

UNINITIALISED = "its values are whatever the memory held"
NO_SPARSE = "the device has no sparse tensors"
ELSEWHERE = "runs on CUDA only"
KNOWN = {
    "addr": "decomposed for foreign back ends, and rounded unlike the CPU's kernel",
    "chalf": "the CPU can't compare ComplexHalf",
    "tensor_split": "its sections must stay on the host, and the sweep moves them",
    "to": "its samples name the CPU as the target",
    "sparse.sampled_addmm": NO_SPARSE,
    "sparse.mm.reduce": NO_SPARSE,
    "to_sparse": NO_SPARSE,
    "empty": UNINITIALISED,
    "empty_like": UNINITIALISED,
    "empty_permuted": UNINITIALISED,
    "empty_strided": UNINITIALISED,
    "new_empty": UNINITIALISED,
    "new_empty_strided": UNINITIALISED,
    "jiterator_unary": ELSEWHERE,
    "jiterator_binary": ELSEWHERE,
    "jiterator_4inputs_with_extra_args": ELSEWHERE,
    "jiterator_binary_return_by_ref": ELSEWHERE,
    "jiterator_2inputs_2outputs": ELSEWHERE,
}
"""Operators that can't be compared, or differ, and why. One that is equal must leave the list,
unless it is so by chance."""


def seed(number: int) -> None:
    """Not torch.manual_seed: that notes a traceback for each device type that is not there."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def moved(value: Any) -> Any:
    """The same arguments on the device."""
    return tree_map(lambda x: x.detach().to(DEVICE) if isinstance(x, torch.Tensor) else x, value)


def copied(value: Any) -> Any:
    return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, value)


def same(ours: Any, theirs: Any) -> bool:
    """Equal bit for bit, NaNs included, and what was a tensor is one on the device."""
    ours, theirs = tree_leaves(ours), tree_leaves(theirs)
    if len(ours) != len(theirs):
        return False
    for our, their in zip(ours, theirs, strict=True):
        if not isinstance(their, torch.Tensor):
            if our != their and their == their:
                return False
            continue
        if our.device.type != "simdev" or (our.dtype, our.shape) != (their.dtype, their.shape):
            return False
        here = our.cpu()
        if not torch.equal(here.isnan(), their.isnan()):
            return False
        if not torch.equal(here[~their.isnan()], their[~their.isnan()]):
            return False
    return True


def calls(operator: Any) -> Iterator[tuple[Callable[..., Any], Any, dict[str, Any]]]:
    """The operator on its first samples, and its in-place variant on the first one."""
    seed(0)
    # Not operator.sample_inputs: that looks for a unittest on the stack, for seconds in all.
    samples = operator.sample_inputs_func(operator, "cpu", torch.float32, False)
    for number, sample in enumerate(samples):
        if number == SAMPLES:
            return
        arguments = (sample.input, *sample.args)
        yield operator, arguments, sample.kwargs
        if number == 0 and operator.inplace_variant is not None:
            yield operator.inplace_variant, arguments, sample.kwargs


def compare(operator: Any) -> str:
    """Empty if the device's results are the CPU's; else what is wrong."""
    tried, wrong = 0, ""
    for call, arguments, keywords in calls(operator):
        there, keywords_there = moved((arguments, keywords))
        if "device" in keywords:
            keywords_there["device"] = DEVICE
        try:
            seed(1)
            expected = call(*copied(arguments), **copied(keywords))
        except Exception:  # not for the CPU, or not in place on these
            continue
        tried += 1
        try:
            seed(1)
            wrong = wrong or ("" if same(call(*there, **keywords_there), expected) else "differs")
            torch.accelerator.synchronize()
        except Exception as error:
            wrong = wrong or f"{type(error).__name__}: {error}"
    return wrong if tried else "the CPU has no answer"


def test_every_operator_gives_the_cpus_bits(sim: SimDevice) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own test utilities, and of odd samples
        from torch.testing._internal.common_methods_invocations import op_db

        wrong, seen = {}, set()
        with sim.steps(seed=0):
            for operator in op_db:
                variant = operator.variant_test_name
                name = operator.name + (f".{variant}" if variant else "")
                seen.add(name)
                if torch.float32 in operator.dtypes and (what := compare(operator)):
                    wrong[name] = what
    unexpected = {name: what for name, what in wrong.items() if name not in KNOWN}
    assert not unexpected
    assert {name for name in KNOWN if name not in wrong} <= {
        name for name, why in KNOWN.items() if why == UNINITIALISED
    }
    assert set(KNOWN) <= seen
    assert len(seen) > 600
    counters = sim.counters()
    assert counters.kernels > 10 * counters.waits


def test_a_view_is_a_view(sim: SimDevice) -> None:
    values = torch.arange(12.0, device=DEVICE).view(3, 4)
    for view in (values[1], values.t(), values[:, ::2], values.view(-1), values.unfold(1, 2, 1)):
        assert view.untyped_storage().data_ptr() == values.untyped_storage().data_ptr()
    values.t()[0, 2] = 100
    assert values[2, 0].item() == 100
    sim.reset_counters()
    values.t()[1:].unsqueeze(0).expand(2, 3, 3)
    assert (sim.counters().kernels, sim.counters().waits) == (0, 0)


def test_an_out_argument_gets_the_size_of_the_result() -> None:
    out = torch.empty(0, device=DEVICE)
    torch.add(torch.ones(3, device=DEVICE), 1, out=out)
    assert out.tolist() == [2, 2, 2]
    indices = torch.empty(0, dtype=torch.int64, device=DEVICE)
    torch.nonzero(torch.tensor([0, 1, 1]).to(DEVICE), out=indices)
    assert indices.tolist() == [[1], [2]]


def test_random_numbers_are_the_hosts() -> None:
    torch.manual_seed(3)
    there = torch.rand(5, device=DEVICE)
    torch.manual_seed(3)
    assert torch.equal(there.cpu(), torch.rand(5))
