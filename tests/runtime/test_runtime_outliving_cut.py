"""A run that an exception cut short may have kept a view of a weight: nobody looked when it ended,
so it is looked for when the module next arrives.
"""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import runtime
from schedule import OffloadError
from tests.runtime.models import batches, outputs, same, stack


class Lazy(nn.Module):
    """Keeps its weight transposed from the first run on, and may then raise."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8) / 4)
        self.turned: torch.Tensor | None = None
        self.fails: type[BaseException] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.turned is None:
            self.turned = self.weight.t()
        if self.fails is not None:
            raise self.fails
        return torch.tanh(x @ self.turned)


def lazy() -> list[Lazy]:
    torch.manual_seed(0)
    return [Lazy() for _ in range(5)]


def cut(layers: list[Lazy], error: type[BaseException]) -> None:
    """A pass that ends in the third layer."""
    layers[2].fails = error
    with pytest.raises(error):
        one_pass(layers)
    layers[2].fails = None


def one_pass(layers: list[Lazy]) -> torch.Tensor:
    x = batches(1)[0]
    with torch.no_grad():
        for layer in layers:
            x = layer(x)
    return x


KEEPS = r"^attribute turned of a Lazy in modules\[2\] keeps a view of its weights"


@pytest.mark.parametrize("policy", ["balanced", "rotating"])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, KeyboardInterrupt])
def test_what_such_a_run_kept_is_refused_before_the_next_one(
    error: type[BaseException], policy: str
) -> None:
    layers = lazy()
    with runtime.offload(layers, slots=2, policy=policy):
        layers[2].fails = error
        with torch.no_grad(), pytest.raises(error):
            layers[2](batches(1)[0])
        layers[2].fails = None
        for _ in range(2):
            with torch.no_grad(), pytest.raises(OffloadError, match=KEEPS):
                layers[2](batches(1)[0])
        layers[2].turned = layers[2].weight.detach().t().clone()
        with torch.no_grad():
            for _ in range(3):
                layers[2](batches(1)[0])


def test_it_would_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin."""
    monkeypatch.setattr("runtime.hooks.check_outliving", lambda *_: None)
    layers = lazy()
    wanted = outputs(nn.Sequential(*lazy()), batches(1))
    with runtime.offload(layers, slots=2, policy="rotating"):
        cut(layers, ValueError)
        assert not torch.equal(one_pass(layers), wanted[0])


def test_what_is_kept_at_the_end_is_said(caplog: pytest.LogCaptureFixture) -> None:
    layers = lazy()
    with caplog.at_level(logging.WARNING), runtime.offload(layers, slots=2):
        layers[2].fails = KeyError
        with torch.no_grad(), pytest.raises(KeyError):
            layers[2](batches(1)[0])
    (said,) = caplog.messages
    assert said == (
        "attribute turned of a Lazy in modules[2] keeps a view of its weights, which shows what "
        "its slot held last"
    )


def test_a_parameter_taken_after_an_interrupt_is_refused_until_it_is_dropped() -> None:
    """The slot is shown until the next hook: what is taken then shows other weights later."""
    model = stack(3).requires_grad_(False)
    wanted = outputs(stack(3), batches(1))
    interrupt = model.layers[1].down.register_forward_pre_hook(interrupts)
    with runtime.offload(model, slots=1):
        with pytest.raises(KeyboardInterrupt):
            model(batches(1)[0])
        interrupt.remove()
        taken = list(model.parameters())
        for _ in range(2):
            with pytest.raises(OffloadError, match=r"keeps layers\.1\.\w+\.\w+, or a view of it"):
                model(batches(1)[0])
        del taken
        for _ in range(2):
            assert same(outputs(model, batches(1)), wanted)


def interrupts(*_: object) -> None:
    raise KeyboardInterrupt


class Giving(nn.Linear):
    """Returns nothing, and puts a view where it is told."""

    def forward(self, into: list[torch.Tensor]) -> None:
        into.append(self.weight[:2])


def test_a_run_within_an_except_block_is_not_taken_for_one_that_raised() -> None:
    layers = [Giving(8, 8) for _ in range(3)]
    with torch.no_grad(), runtime.offload(layers, slots=2):
        try:
            raise KeyError
        except KeyError:
            with pytest.raises(OffloadError, match=r"keeps modules\[0\]\.weight, or a view of it"):
                layers[0]([])


# ---- no harm


def test_autocast_s_own_copies_do_no_harm() -> None:
    """They refer to the Parameter that was cast, since it requires grad."""
    model, plain = stack(3), stack(3)
    x = batches(1)[0]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = [plain(x) for _ in range(2)]
    with torch.no_grad(), runtime.offload(model, slots=2), torch.autocast("cpu", torch.bfloat16):
        assert same([model(x) for _ in range(2)], wanted)


def test_other_data_in_a_run_that_raised_is_refused_before_the_next_one() -> None:
    class Moving(nn.Linear):
        fails = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.fails:
                self.weight.data = 2 * self.weight.data
                raise KeyError
            return super().forward(x)

    layers = [Moving(8, 8) for _ in range(3)]
    with torch.no_grad(), runtime.offload(layers, slots=2):
        layers[0].fails = True
        with pytest.raises(KeyError):
            layers[0](batches(1)[0])
        layers[0].fails = False
        with pytest.raises(OffloadError, match="was given other data"):
            layers[0](batches(1)[0])
        layers[0](batches(1)[0])
