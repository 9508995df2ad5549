"""Around the passes: what is saved, loaded, moved, copied, replaced, added and deleted."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import runtime
from runtime.device import InlineStreams
from runtime.placement import Placement
from schedule.errors import OffloadError
from tests.runtime.changes import CHANGES, Adapter, adapted, another_name, replaced
from tests.runtime.models import (
    WIDTH,
    Block,
    Stack,
    as_bytes,
    assert_same_values,
    batches,
    outputs,
    picture,
    same,
    stack,
)


def wanted_of(model: nn.Module) -> list[torch.Tensor]:
    """What the model's values give without an offload."""
    twin = stack(len(model.layers), uneven=True)
    twin.load_state_dict(model.state_dict())
    return outputs(twin, batches(2))


# ---- saving


@pytest.mark.parametrize("keep_vars", [False, True])
def test_a_state_dict_taken_in_a_run_is_right_and_stays_right(keep_vars: bool) -> None:
    model = stack(3)
    before = picture(model).values
    taken: list[dict[str, torch.Tensor]] = []
    take = lambda *_: taken.append(model.state_dict(keep_vars=keep_vars))  # noqa: E731
    for module in model.modules():
        module.register_forward_hook(take)
        module.register_forward_pre_hook(take)
    with runtime.offload(model, slots=1) as offloaded:
        outputs(model, batches(2))
        assert offloaded.report().copies >= 6
        assert len(taken) == 2 * 2 * 12
        own = dict(model.named_parameters())
        for state in taken:
            assert_same_values(state, before)
            assert all((state[name] is own[name]) == keep_vars for name in own)


class Writing(Block):
    """Writes into its weights, then saves them in the same run."""

    saved: list[dict[str, torch.Tensor]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.up.weight.add_(1)
        self.saved.append(copy.deepcopy(self.state_dict()))
        return super().forward(x)


def test_what_a_run_wrote_so_far_is_in_its_state_dict() -> None:
    torch.manual_seed(0)
    model, Writing.saved = Stack([Writing() for _ in range(3)]), []
    first = model.layers[0].up.weight.detach().clone()
    with runtime.offload(model, slots=1):
        outputs(model, batches(2))
    assert [torch.equal(s["up.weight"], first + n) for n, s in ((1, Writing.saved[0]),)] == [True]
    assert torch.equal(Writing.saved[3]["up.weight"], first + 1 + 1)


# ---- loading


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("part", ["", "layers.1", "layers", "layers.1.up"])
def test_what_is_loaded_is_seen_by_the_next_pass(part: str, assign: bool) -> None:
    model = stack(4, uneven=True)
    for slots in (1, 2, 4):
        with runtime.offload(model, slots=slots) as offloaded:
            for _ in range(2):
                outputs(model, batches(1))
                values = {n: torch.randn_like(t) for n, t in picture(model).values.items()}
                target = model.get_submodule(part)
                inner = {n.removeprefix(f"{part}."): v for n, v in values.items()}
                chosen = {n: v for n, v in inner.items() if n in target.state_dict()}
                target.load_state_dict(chosen, assign=assign)
                assert same(outputs(model, batches(2)), wanted_of(model))
                for name, value in chosen.items():
                    assert as_bytes(target.state_dict()[name]) == as_bytes(value)
            assert offloaded.report().copies > 0
        assert same(outputs(model, batches(2)), wanted_of(model))


def test_what_a_load_replaced_in_many_layers_is_adopted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, adopted = stack(4, uneven=True), []
    values = {name: value + 1 for name, value in model.state_dict().items()}
    renew = Placement.renew
    monkeypatch.setattr(Placement, "renew", lambda p, some: adopted.append(some) or renew(p, some))
    with runtime.offload(model, slots=2):
        for _ in range(2):
            model.load_state_dict({n: v.clone() for n, v in values.items()}, assign=True)
            assert same(outputs(model, batches(2)), wanted_of(model))
    assert adopted == [[0, 1, 2, 3]] * 2


def test_a_load_that_was_interrupted_hides_no_later_one() -> None:
    """Of the root it was; a layer's replaced weights are an error then, and not overlooked."""
    model = stack(3, uneven=True)
    with runtime.offload(model, slots=2) as offloaded:
        before = model.layers[0].register_load_state_dict_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.load_state_dict(model.state_dict())
        before.remove()
        layer = model.layers[1]
        layer.load_state_dict({n: v + 1 for n, v in layer.state_dict().items()}, assign=True)
        with pytest.raises(OffloadError, match=r"refresh\(\) to adopt"):
            outputs(model, batches(1))
        offloaded.refresh()
        assert same(outputs(model, batches(2)), wanted_of(model))
        layer.load_state_dict({n: v + 1 for n, v in layer.state_dict().items()}, assign=True)
        assert same(outputs(model, batches(2)), wanted_of(model))


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_loading_first_waits_for_copies_that_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model, waits = stack(3), []
    weight = model.layers[0].up.weight
    before, loaded = weight.detach().clone(), {n: t + 1 for n, t in model.state_dict().items()}
    with monkeypatch.context() as patch:
        wait = lambda _: waits.append(weight.detach().clone())  # noqa: E731
        patch.setattr(InlineStreams, "synchronize", wait)
        with runtime.offload(model, slots=1):
            model.load_state_dict(loaded)
            assert torch.equal(weight, before + 1)
            assert torch.equal(waits[0], before)


@pytest.mark.parametrize("part", ["layers.0", "layers.0.up"])
def test_loading_a_part_waits_too(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, waits = stack(3), []
    with monkeypatch.context() as patch:
        patch.setattr(InlineStreams, "synchronize", lambda _: waits.append(1))
        with runtime.offload(model, slots=1):
            target = model.get_submodule(part)
            target.load_state_dict(target.state_dict())
            assert waits


# ---- changing


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_detected_and_refresh_adopts_it(
    change: Callable[[Stack], None], slots: int
) -> None:
    model = stack(4, uneven=True)
    plain = outputs(model, batches(2))
    with runtime.offload(model, slots=slots, policy="chain") as offloaded:
        outputs(model, batches(1))
        change(model)
        with pytest.raises(OffloadError, match=r"layers\.\d" + CHANGES[change] + r".*refresh\(\)"):
            outputs(model, batches(1))
        offloaded.refresh()
        offloaded.refresh()
        now = outputs(model, batches(2))
        copies = offloaded.report().copies
        for slot in offloaded.arena.slots:
            slot.fill_(0xFF)
        offloaded.refresh()
        assert same(outputs(model, batches(2)), now)
        assert offloaded.report().copies > copies > 0
        values = picture(model).values
    assert_same_values(picture(model).values, values)
    assert same(outputs(model, batches(2)), now)
    assert same(now, plain) == (change is another_name)


def test_adapters_are_offloaded_too_and_can_be_removed() -> None:
    model = stack(4)
    plain = outputs(model, batches(2))
    with runtime.offload(model, slots=1) as offloaded:
        before = offloaded.report()
        adapted(model)
        offloaded.refresh()
        with_adapters = offloaded.report()
        assert with_adapters.bytes_offloaded - before.bytes_offloaded == 4 * 4 * 4 * WIDTH
        assert with_adapters.bytes_rest == before.bytes_rest
        assert not same(outputs(model, batches(2)), plain)
        for layer in model.layers:
            layer.up = layer.up.base
        offloaded.refresh()
        assert offloaded.report().bytes_offloaded == before.bytes_offloaded
        assert same(outputs(model, batches(2)), plain)


class Merging(Adapter):
    """Merges as peft does: through ``.data``, unseen by versions."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base)
        self.merged_adapters: list[str] = []

    def merge(self) -> None:
        self.base.weight.data += self.up.weight.data @ self.down.weight.data
        self.merged_adapters.append("default")

    def unmerge(self) -> None:
        self.base.weight.data -= self.up.weight.data @ self.down.weight.data
        self.merged_adapters.pop()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) if self.merged_adapters else super().forward(x)


@pytest.mark.parametrize("slots", [2, 4])
def test_an_adapter_that_is_merged_or_unmerged_is_seen_by_the_next_pass(slots: int) -> None:
    model = stack(4)
    for layer in model.layers:
        layer.up = Merging(layer.up)
    twin = copy.deepcopy(model)
    with runtime.offload(model, slots=slots) as offloaded:
        for how in (Merging.merge, Merging.unmerge, Merging.merge):
            outputs(model, batches(1))
            for layer, own in zip(model.layers, twin.layers, strict=True):
                getattr(layer.up, how.__name__)()
                how(own.up)
            assert same(outputs(model, batches(2)), outputs(twin, batches(2)))
        assert offloaded.report().copies > 0
    for layer in model.layers:
        layer.up.unmerge()
        assert {"merge", "unmerge"}.isdisjoint(vars(layer.up))


def test_an_adapter_is_not_merged_in_its_run() -> None:
    model = stack(3)
    model.layers[1].up = Merging(model.layers[1].up)
    model.layers[1].down.register_forward_hook(lambda *_: model.layers[1].up.merge())
    with (
        runtime.offload(model, slots=1),
        pytest.raises(
            OffloadError, match=r"merge\(\) of a Merging was called while its module runs"
        ),
    ):
        outputs(model, batches(1))


def test_a_change_in_a_run_is_refused_by_refresh() -> None:
    model = stack(3)
    with runtime.offload(model, slots=1) as offloaded:

        def change(*_: object) -> None:
            replaced(model)
            offloaded.refresh()

        handle = model.layers[1].down.register_forward_hook(change)
        with pytest.raises(OffloadError, match="while a module was running; change the model betw"):
            outputs(model, batches(1))
        handle.remove()
        offloaded.refresh()
        outputs(model, batches(1))


def test_a_layer_replaced_as_a_whole_is_refused_by_refresh() -> None:
    model = stack(3)
    with runtime.offload(model, slots=1) as offloaded:
        model.layers[1] = Block()
        with pytest.raises(OffloadError, match=r"layers\.1, a Block, is no part of .* any more;"):
            offloaded.refresh()


def test_a_closed_offload_has_nothing_to_refresh() -> None:
    offloaded = runtime.offload(stack(3), slots=1)
    offloaded.close()
    with pytest.raises(OffloadError, match="this offload is closed"):
        offloaded.refresh()


def test_a_change_that_cannot_be_adopted_says_why() -> None:
    model = stack(3)
    with runtime.offload(model, slots=1) as offloaded:
        model.layers[1].up.weight = nn.Parameter(torch.zeros(8, 1).expand(8, 8))
        with pytest.raises(OffloadError, match=r"layers\.1\.up\.weight overlaps itself"):
            offloaded.refresh()


def test_close_in_the_middle_of_changes_gives_everything_back() -> None:
    model = stack(3)
    offloaded = runtime.offload(model, slots=1)
    adapted(model)
    offloaded.close()
    assert same(outputs(model, batches(1)), outputs(copy.deepcopy(model), batches(1)))
    with runtime.offload(model, slots=1) as offloaded:
        assert same(outputs(model, batches(1)), outputs(model, batches(1)))
        assert offloaded.report().copies > 0
