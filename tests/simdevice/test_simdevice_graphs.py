"""Captured passes, replayed: right bit for bit, whatever ran in between, under every seed.

Slots are poisoned in the graphs too, so that a run which its refill does not precede gives NaN.
"""

from __future__ import annotations

from random import Random

import pytest
import torch

import runtime
from runtime.unverified import offload_without_proof
from schedule import Ring, policies
from schedule.audit import audit
from tests.runtime.poison import Poisoned
from tests.simdevice.ahead import seeds
from tests.simdevice.device import SimDevice
from tests.simdevice.graphs import CLOSED, SAFE, Pair, copies
from tests.simdevice.helpers import DEVICE, stream


@pytest.mark.parametrize("policy", SAFE)
def test_replays_are_right_under_every_seed(sim: SimDevice, policy: str) -> None:
    with Pair(policy=policy, uneven=True, on_miss="raise") as pair:
        captured = pair.capture()
        done = 1
        for seed, adversary in seeds():
            with sim.steps(seed, adversary):
                assert pair.replayed(captured), (seed, adversary)
                assert pair.replayed(captured), (seed, adversary)
            done += 2
        assert pair.counts == (5 * done, copies(policy) * done, 0)


@pytest.mark.parametrize("policy", ["slot_local", "double_buffer"])
def test_static_mode_is_captured_like_any_other(sim: SimDevice, policy: str) -> None:
    """Its hooks are operators, which issue what hooks issue."""
    with Pair(policy=policy, static=True) as pair:
        captured = pair.capture()
        for seed, adversary in seeds():
            with sim.steps(seed, adversary):
                assert pair.replayed(captured)
                assert pair.eager([0, 1])
                assert pair.replayed(captured)
                assert pair.eager()
        missed = pair.counts[2]
        assert pair.counts[0] == 5 + len(list(seeds())) * 17
        assert missed > 0
        with pair.offloaded.trace() as trace:
            assert pair.replayed(captured)
        assert audit(trace).fits
        assert pair.counts[2] == missed


def test_replays_are_right_in_real_time(sim: SimDevice) -> None:
    for seed in range(3):
        with sim.threads(seed, microseconds=200), Pair(policy="chain") as pair:
            captured = pair.capture()
            assert all(pair.replayed(captured) for _ in range(3))
            assert pair.eager()
            assert pair.counts == (25, 5 * copies("chain"), 0)


def test_the_slots_are_poisoned_in_replays_too(sim: SimDevice, poisoned: Poisoned) -> None:
    """Twin: without the copies that the graph holds all is NaN."""
    with Pair() as pair:
        captured = pair.capture()
        assert poisoned.released == [0, 1, 2, 3, 4] * 2  # eagerly, and captured
        pair.offloaded.arena.slots[0].fill_(0xFF)
        with pytest.raises(RuntimeError, match=r"slot 0 does not hold layers.0 \(module 0\)"):
            pair.replayed(captured)
    sim.reset_counters()


@pytest.mark.parametrize("policy", SAFE)
def test_eager_passes_and_replays_in_any_sequence(policy: str) -> None:
    random = Random(policy)
    with Pair(policy=policy, on_miss="raise") as pair:
        captured = [pair.capture(), pair.capture()]
        for _ in range(12):
            if random.random() < 0.5:
                assert pair.eager()
            else:
                assert pair.replayed(random.choice(captured))
        assert pair.counts == (5 * 14, 14 * copies(policy), 0)


@pytest.mark.parametrize("policy", SAFE)
def test_replays_after_passes_that_were_cut_short(sim: SimDevice, policy: str) -> None:
    random = Random(policy)
    with Pair(policy=policy, uneven=True) as pair:
        captured = pair.capture()
        for seed, adversary in seeds(6):
            order = random.choices(range(5), k=random.randint(0, 7))
            with sim.steps(seed, adversary):
                assert pair.eager(order), order
                before = pair.counts
                assert pair.replayed(captured), order
            runs, copied, missed = (a - b for a, b in zip(pair.counts, before, strict=True))
            assert (runs, copied) == (5, copies(policy) + missed)
            assert missed <= len(captured.graph.needs)
        assert policy in ("restart", "one_ahead", "on_demand") or pair.counts[2] > 0


def test_what_a_replay_loads_is_what_was_disturbed() -> None:
    with Pair(5, 2, "chain") as pair:
        captured = pair.capture()
        assert (captured.graph.needs, captured.graph.leaves) == ({0: 0, 1: 1}, {0: 0, 1: 1})
        assert pair.eager([0])  # slot 0 holds module 2 now
        assert pair.replayed(captured)
        # One pass to warm up, module 0 and its refill, the pass with what was loaded before it.
        assert pair.counts == (11, 5 + 1 + 5 + 1, 1)
        assert pair.replayed(captured)
        assert pair.counts == (16, 17, 1)


def test_pieces_have_their_own_states() -> None:
    halves = [0, 1], [2, 3, 4]
    with Pair(5, 2, "chain", on_miss="raise") as pair:
        first = pair.capture(halves[0])
        assert first.graph.needs == {0: 0, 1: 1}
        assert first.graph.leaves == {0: 2, 1: 3}
        assert pair.replayed(first, halves[0])
        second = pair.capture(halves[1])
        assert second.graph.needs == {0: 2, 1: 3}
        assert second.graph.leaves == {0: 0, 1: 1}
        assert pair.replayed(second, halves[1])
        before = pair.counts
        for _ in range(3):
            assert pair.replayed(first, halves[0])
            assert pair.replayed(second, halves[1])
        assert pair.eager(halves[0])
        assert pair.replayed(second, halves[1])
        assert pair.eager()
        assert pair.counts == (before[0] + 25, before[1] + 25, 0)


def test_pieces_in_the_wrong_order_are_loaded() -> None:
    halves = [0, 1], [2, 3, 4]
    with Pair(5, 2, "chain") as pair:
        pieces = [(pair.capture(half), half) for half in halves]
        random = Random(1)
        for _ in range(20):
            assert pair.replayed(*random.choice(pieces))
        before = pair.counts
        assert pair.replayed(*pieces[1])
        assert pair.replayed(*pieces[1])
        assert pair.counts[2] > before[2]


def test_a_replay_on_another_stream(sim: SimDevice) -> None:
    with Pair() as pair:
        captured = pair.capture()
        side = stream()
        for seed, adversary in seeds(4):
            with sim.steps(seed, adversary):
                assert pair.eager()
                pair.feed()
                side.wait_stream(torch.accelerator.current_stream())  # the inputs
                with side:
                    captured.replay()
                    given = captured.output.cpu()
                assert torch.equal(given, pair.wanted())
                assert pair.eager()
        assert pair.counts[2] == 0


def test_the_pass_that_warms_up_is_in_order_with_what_is_around_it(sim: SimDevice) -> None:
    """It is on a stream of its own: it reads inputs that were issued before, and what it wrote is
    read after it, also if it raised."""
    for seed, adversary in seeds(4):
        with Pair() as pair, sim.steps(seed, adversary):
            pair.feed()
            pair.capture()
            assert torch.equal(pair.model.seen.cpu(), pair.plain.seen)

            def raises() -> None:
                pair.model(pair.inputs)
                raise ValueError

            pair.feed()
            with pytest.raises(ValueError, match=r"^$"):
                pair.offloaded.capture(raises)
            seen = pair.model.seen + 0  # on the stream that was current before
            pair.plain(pair._x)
            assert torch.equal(seen.cpu(), pair.plain.seen)


def test_weights_are_read_as_they_are_at_each_replay() -> None:
    with Pair() as pair:
        captured = pair.capture()
        for index in range(5):
            torch.accelerator.synchronize()
            for model in (pair.model, pair.plain):
                model.layers[index].up.weight.mul_(-1)
            assert pair.replayed(captured), index
        state = {name: one + 0.25 for name, one in pair.plain.state_dict().items()}
        for model in (pair.model, pair.plain):
            model.load_state_dict(state)
        assert pair.replayed(captured)
        # Modules 0 and 1 are read before they are copied: theirs were loaded anew, each time.
        assert pair.counts[2] == 2 + 2


def test_after_refresh_all_is_loaded_anew() -> None:
    with Pair() as pair:
        captured = pair.capture()
        for model in (pair.model, pair.plain):
            model.layers[1].up.weight.data.add_(1)  # which torch does not count
        pair.offloaded.refresh()
        assert pair.replayed(captured)
        assert pair.counts == (10, 10 + 2, 2)


def test_two_offloads_at_once(sim: SimDevice) -> None:
    with Pair(5, 2) as one, Pair(4, 3, "double_buffer") as other:
        graphs = one.capture(), other.capture()
        for seed, adversary in seeds(3):
            with sim.steps(seed, adversary):
                assert one.replayed(graphs[0])
                assert other.replayed(graphs[1])
                assert other.eager()
        assert (one.counts[2], other.counts[2]) == (0, 0)


def test_prefill_then_decode_is_a_trace_that_fits() -> None:
    """Eager prefill, then replayed decode, with a prefill between that is cut short."""
    for policy in SAFE:
        with Pair(policy=policy) as pair, pair.offloaded.trace() as trace:
            assert pair.eager()
            captured = pair.capture()
            assert all(pair.replayed(captured) for _ in range(3))
            assert pair.eager([0, 1, 2])
            assert all(pair.replayed(captured) for _ in range(2))
            assert pair.eager()
        found, (runs, copied, missed) = audit(trace), pair.counts
        assert found.fits, str(found)
        assert (found.runs, found.copies, found.misses) == (runs, copied, missed)
        assert found.passes == 8


def test_a_trace_that_begins_later_knows_the_graphs() -> None:
    with Pair() as pair:
        halves = [pair.capture([0, 1]), pair.capture([2, 3, 4])]
        with pair.offloaded.trace() as trace:
            assert pair.replayed(halves[0], [0, 1])
            assert pair.replayed(halves[1], [2, 3, 4])
        assert [graph.name for graph in trace.graphs] == [one.graph.name for one in halves]
        found = audit(trace)
        assert found.fits, str(found)
        assert (found.runs, found.passes) == (5, 1)


def test_what_runs_in_another_order_is_reloaded_in_the_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    order = [4, 3, 2, 1, 0]
    with Pair() as pair:
        captured = pair.capture(order)
        (said,) = (one.message for one in caplog.records if "each replay" in one.message)
        assert said.startswith("graph 1 reloads 3 modules in each replay, since its function")
        before = pair.counts
        assert pair.replayed(captured, order)
        runs, copied, missed = (a - b for a, b in zip(pair.counts, before, strict=True))
        assert (runs, missed) == (5, 3)
        assert copied == copies("chain") + 3
        assert pair.eager()
        assert pair.replayed(captured, order)


@pytest.mark.parametrize("policy", CLOSED)
def test_the_old_rule_is_seen_by_the_device(policy: str) -> None:
    """Without a guard the graph holds what the schedule says, and the numbers in the slots what is
    wrong with it. Twin: with the proved ones nothing is."""
    with Pair(policy=policy, offload=offload_without_proof, output_may_be_wrong=True) as pair:
        if policy != "modular":
            captured = pair.capture()
            assert pair.replayed(captured)
            return
        pair.feed()
        captured = pair.capture()
        captured.replay()
        with pytest.raises(RuntimeError, match=r"slot 0 does not hold layers.4 \(module 4\)"):
            torch.accelerator.synchronize()


def test_found_layers_are_in_order_before_they_are_captured() -> None:
    """The pass that warms up is the first one, after which the order is adopted."""
    pair = Pair()
    pair.offloaded.close()
    with runtime.offload(pair.model, slots=2, policy="chain", device=DEVICE) as offloaded:
        pair.offloaded = offloaded
        captured = pair.capture([4, 3, 2, 1, 0])
        assert pair.replayed(captured, [4, 3, 2, 1, 0])
        assert offloaded.selection.names == tuple(f"layers.{n}" for n in (4, 3, 2, 1, 0))
        assert pair.counts[2] <= 5  # of the first pass alone


def test_found_layers_keep_their_order_while_there_are_graphs() -> None:
    """A piece was captured before the first complete pass, which then shows another order."""
    pair = Pair()
    pair.offloaded.close()
    backwards = [4, 3, 2, 1, 0]
    with runtime.offload(pair.model, slots=2, policy="chain", device=DEVICE) as offloaded:
        pair.offloaded = offloaded
        (zero, one, *_), plain = pair.model.layers, pair.plain.layers
        captured = offloaded.capture(lambda: one(zero(pair.inputs)))
        assert pair.eager(backwards)
        pair.feed()
        captured.replay()
        assert torch.equal(captured.output.cpu(), plain[1](plain[0](pair._x)))
        assert offloaded.selection.names == tuple(f"layers.{n}" for n in range(5))
        assert pair.eager(backwards)


def test_where_a_replay_ends_is_where_the_next_pass_goes_on() -> None:
    """Without the root, a pass begins where a module comes that is no later than the last one."""
    pair = Pair()
    pair.offloaded.close()
    layers = list(pair.model.layers)
    with runtime.offload(layers, slots=2, policy="restart", device=DEVICE) as pair.offloaded:
        pair.model.seen = pair.model.seen.to(DEVICE)
        captured = pair.capture([0, 1])
        assert pair.eager()
        assert pair.replayed(captured, [0, 1])
        before = pair.counts
        assert pair.eager([2, 3, 4])
        assert pair.counts == (before[0] + 3, before[1] + 1, before[2])


def test_a_replay_issues_nothing_from_python(sim: SimDevice) -> None:
    """But the joins and records around it: no module is called, no copy is issued."""
    with Pair() as pair:
        captured = pair.capture()
        pair.feed()
        torch.accelerator.synchronize()
        sim.reset_counters()
        captured.replay()
        counted = sim.counters()
        assert (counted.kernels, sum(counted.copies.values())) == (0, 0)
        assert counted.waits == 0
        assert torch.equal(captured.output.cpu(), pair.wanted())


def test_the_model_goes_on_when_the_graph_is_gone() -> None:
    with Pair() as pair:
        captured = pair.capture()
        assert pair.replayed(captured)
        del captured
        assert pair.eager()
        assert pair.counts == (15, 15, 0)
        assert pair.replayed(pair.capture())


def test_needs_are_those_of_the_schedule() -> None:
    for policy in SAFE:
        schedule = policies.named(policy)(Ring(5, 2))
        with Pair(policy=policy) as pair:
            graph = pair.capture().graph
            reads = {schedule.slot_of[module] for module in range(5)}
            assert set(graph.needs) <= reads
            assert all(schedule.slot_of[module] == slot for slot, module in graph.needs.items())
