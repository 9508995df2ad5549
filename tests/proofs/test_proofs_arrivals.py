"""What a guarded engine issues for modules that arrive in any order."""

from __future__ import annotations

from collections.abc import Sequence
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


def missed(schedule: Schedule, order: Sequence[Sequence[int]]) -> int:
    """The same, by a dict of what is in the slots."""
    holds, count = dict(schedule.preload), 0
    for number, modules in enumerate(order):
        at = number % schedule.period
        holds.update(schedule.enter[at])
        for module in modules:
            step = at * schedule.ring.modules + module
            holds.update(schedule.before[step])
            count += holds.get(schedule.slot_of[step]) != module
            holds[schedule.slot_of[step]] = module
            holds.update(schedule.after[step])
        holds.update(schedule.leave[at])
    return count


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
    assert misses(listing) == missed(drawn.schedule, running)
    assert order(listing, streams).safe


@pytest.mark.parametrize("module", [3, -1, True, 1.5, "0"])
def test_a_module_that_is_none_is_refused(module: object) -> None:
    with pytest.raises(ValueError, match=r"pass 1 runs module .*; the modules of Ring\(modules=3"):
        arrive(policies.chain(Ring(3, 2)), [(0,), (module,)])  # type: ignore[arg-type]
