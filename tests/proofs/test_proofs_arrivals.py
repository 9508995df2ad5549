"""What a guarded engine issues for modules that arrive in any order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs import strategies
from proofs.arrivals import arrive, misses
from proofs.cases import STREAMS
from schedule import Policy, Ring, Schedule, policies
from schedule.operations import Run, Streams
from schedule.order import order
from schedule.program import RELOAD, lower
from schedule.table import Boundary

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=100)


def on_leave(boundary: Boundary, slot: int, ring: Any) -> int | None:
    """What a slot needs first is brought when the pass before it ends."""
    half, step = boundary
    if half in ("preload", "leave"):
        return slot
    ahead = half == "after" and step % ring.slots == slot and step + ring.slots < ring.modules
    return int(step + ring.slots) if ahead else None


LEAVES = Policy("on_leave", lambda step, ring: step % ring.slots, refill=on_leave)


@pytest.mark.parametrize("policy", [*policies.NAMED.values(), LEAVES], ids=lambda one: one.name)
def test_in_order_it_is_the_program_and_a_safe_one_misses_nothing(policy: Policy) -> None:
    schedule = policy(Ring(5, 3))
    passes = [range(5)] * 2 * schedule.period
    listing = arrive(schedule, passes)
    # Modules 3 and 4 are overwritten in each pass, and 0 and 1 are not brought for the next.
    assert misses(listing) == (6 if policy is policies.modular else 0)
    listing = tuple(one for one in listing if one.boundary.half != RELOAD)
    operations = [one.operation for one in listing]
    assert operations == [one.operation for one in lower(schedule).listing(2)]


def test_what_is_missed_is_reloaded_before_it_runs() -> None:
    schedule = policies.chain(Ring(3, 2))
    listing = arrive(schedule, [(0, 1), (0, 2)])
    reloads = [at for at, one in enumerate(listing) if one.boundary.half == RELOAD]
    assert misses(listing) == 1  # module 0: the first pass left module 2 in its slot
    assert {listing[at].boundary for at in reloads} == {Boundary(RELOAD, 0)}
    run = listing[reloads[-1] + 2].operation
    assert isinstance(run, Run)
    assert run.module == 0


def missed(schedule: Schedule, order: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The same, by a dict of what is in the slots: the pass and the slot of each."""
    holds, found = dict(schedule.preload), []
    for number, modules in enumerate(order):
        at = number % schedule.period
        holds.update(schedule.enter[at])
        for module in modules:
            step = at * schedule.ring.modules + module
            slot = schedule.slot_of[step]
            holds.update(schedule.before[step])
            if holds.get(slot) != module:
                found.append((number, slot))
            holds[slot] = module
            holds.update(schedule.after[step])
        holds.update(schedule.leave[at])
    return found


@FIXED
@given(strategies.schedules(), st.data())
def test_any_order_of_any_schedule_is_ordered_and_finds_its_weights(
    drawn: strategies.LabelledSchedule, data: st.DataObject
) -> None:
    """Claim 7, on orders as they are drawn for users: unsafe schedules miss, and are right."""
    passes = data.draw(strategies.orders(drawn.schedule.ring.modules))
    running = [one.modules for one in passes]
    streams: Streams = STREAMS[data.draw(st.sampled_from(sorted(STREAMS)))]
    listing = arrive(drawn.schedule, running, streams)
    assert misses(listing) == len(missed(drawn.schedule, running))
    assert order(listing, streams).safe


def missed_after(schedule: Schedule, disturbed: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """What passes in order miss after disturbed ones: the pass, from 0, and the slot of each. They
    are as many as it takes for each slot to run, and then two periods."""
    whole = range(schedule.ring.modules)
    passes = -(-schedule.ring.slots // len(whole)) + 2 * schedule.period
    found = missed(schedule, [*disturbed, *[whole] * passes])
    return [(at - len(disturbed), slot) for at, slot in found if at >= len(disturbed)]


@FIXED
@given(strategies.safe_schedules(), st.data())
def test_after_disturbed_passes_each_slot_of_a_safe_schedule_misses_once_at_most(
    drawn: strategies.LabelledSchedule, data: st.DataObject
) -> None:
    """At the first run from it: what is reloaded then is what it would hold without any
    disturbance, and the same refills follow. So no pass misses anything after one in which the
    slot ran, which is the first one unless there are more slots than modules."""
    ring = drawn.schedule.ring
    passes = data.draw(strategies.orders(ring.modules))
    found = missed_after(drawn.schedule, [one.modules for one in passes])
    slots = [slot for _, slot in found]
    assert len(slots) == len(set(slots)) <= ring.slots
    for at, slot in found:
        start = (len(passes) + at) % drawn.schedule.period * ring.modules
        assert slot in drawn.schedule.slot_of[start : start + ring.modules]
        if drawn.schedule.period == 1:
            assert at == 0


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        *[(one, 3) for one in ("slot_local", "chain", "rotating")],
        *[(one, 2) for one in ("balanced", "double_buffer")],  # the third slot is a module's own
        ("single_buffer", 1),
        *[(one, 0) for one in ("restart", "one_ahead", "on_demand")],  # each loads what it runs
    ],
)
def test_the_most_that_a_policy_misses_after_any_one_disturbed_pass(policy: str, most: int) -> None:
    """Of seven modules and three slots, over every pass of up to three modules."""
    schedule = policies.named(policy)(Ring(7, 3))
    runs = [order for length in range(4) for order in product(range(7), repeat=length)]
    assert max(len(missed_after(schedule, [order])) for order in runs) == most


def test_a_schedule_that_is_not_safe_has_no_such_bound() -> None:
    """Twin: the old rule misses two modules in every pass, however many follow."""
    found = missed_after(policies.modular(Ring(3, 2)), [range(3)])
    assert found == [(at, 0) for at in range(3) for _ in range(2)]


@pytest.mark.parametrize("module", [3, -1, True, 1.5, "0"])
def test_a_module_that_is_none_is_refused(module: object) -> None:
    with pytest.raises(ValueError, match=r"pass 1 runs module .*; the modules of Ring\(modules=3"):
        arrive(policies.chain(Ring(3, 2)), [(0,), (module,)])  # type: ignore[arg-type]
