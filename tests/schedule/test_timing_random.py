"""The steady state, by simulation and as a cycle mean, against the program's own tasks."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from random import Random

import pytest

from proofs.planted import gap, line_of
from proofs.timed import execute
from schedule import Ring, Schedule, check, policies
from schedule.costs import Times
from schedule.errors import PolicyError
from schedule.graphs import lower_captured
from schedule.operations import COMPUTE, COPY, Run, Streams
from schedule.pace import actions_of, pace, replay_pace
from schedule.policy import Policy
from schedule.program import lower
from schedule.table import AFTER, PRELOAD, Boundary
from schedule.tasks import write_out
from schedule.timing import pass_time, steady
from tests.schedule.reckoning import Reckoned, listing_of, reckon, shown

STREAMS = {
    "one": Streams(),
    "two": Streams(("copy 0", "copy 1")),
    "three": Streams(("copy 0", "copy 1", "copy 2")),
    "shared": Streams((COMPUTE,)),
    "mixed": Streams((COMPUTE, COPY)),
}
CASES = 400
PERIODS, MANY = 40, 700
"""How many are looked at, and how many where fewer do not show the steady state."""


def at_random(random: Random) -> tuple[Schedule, Times, bool]:
    """A safe schedule, times, and whether its pass is a graph. Before each run, at one of the
    boundaries since the run before it in its slot, its module is copied: where that is another one
    it must be, else it may be."""
    ring, captured = Ring(random.randint(1, 6), random.randint(1, 5)), random.random() < 0.4
    passes = 1 if captured else random.randint(1, 2)
    slot_of = [random.randrange(ring.slots) for _ in range(ring.modules * passes)]
    line, after = line_of(ring.modules, passes), random.random() < 0.5
    plan = {(Boundary(PRELOAD, 0), slot): slot_of.index(slot) % ring.modules for slot in slot_of}
    for step, slot in enumerate(slot_of):
        boundaries, before = gap(line, slot_of, step)
        if before % ring.modules != step % ring.modules or random.random() < 0.2:
            at = Boundary(AFTER, before) if after else random.choice(boundaries)
            plan[at, slot] = step % ring.modules
    policy = Policy(
        "random",
        lambda step, _: slot_of[step],
        refill=lambda boundary, slot, _: plan.get((boundary, slot)),
        passes=lambda _: passes,
    )
    most, rest = random.choice((1, 4, 9, 1000)), random.choice((0, 5))
    run, copy = (tuple(random.randint(0, one) for _ in range(ring.modules)) for one in (9, most))
    between = tuple(random.randint(0, rest) for _ in range(ring.modules + 1))
    streams = STREAMS[random.choice([*STREAMS])]
    return policy(ring), Times(run, between, copy, streams), captured


def difference(schedule: Schedule, times: Times, captured: bool) -> str:
    """Where the simulation, the cycle mean and the tasks disagree; "" where they don't."""
    found, mean = steady(schedule, times, captured), pass_time(schedule, times, captured)
    if found.time != mean:
        return f"simulated {found.time}, largest cycle mean {mean}"
    if not found.exact:
        return "no steady state is found"
    for periods in PERIODS, MANY:
        reckoned = reckon(schedule, times, periods, captured)
        time = reckoned.time(schedule.period)
        where = "" if time != mean else _spans(found.start, shown(found), reckoned)
        if time == mean and not where:
            return ""
    return where or f"simulated {mean}, but the tasks take {time}"


def _spans(start: int, spans: list[object], reckoned: Reckoned) -> str:
    """The spans are those of periods in a row, time for time."""
    number = len(spans) // start if start else 1
    for at in range(len(reckoned.spans) - number + 1):
        if [one for period in reckoned.spans[at : at + number] for one in period] == spans:
            return ""
    return f"no {number} periods in a row have these spans: {spans}"


@pytest.mark.parametrize("part", range(4))
def test_simulation_cycle_mean_and_tasks_agree(part: int) -> None:
    for seed in range(part, CASES, 4):
        assert difference(*at_random(Random(seed))) == "", seed


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", STREAMS)
def test_every_named_policy_in_small_rings(name: str, captured: bool) -> None:
    random, looked_at = Random(name), 0
    for policy, modules, slots in product(policies.NAMED.values(), (1, 2, 4, 5), (1, 2, 3)):
        try:
            schedule = policy(Ring(modules, slots))
        except PolicyError:
            continue
        if captured and schedule.period > 1:
            continue
        run, copy = (tuple(random.randint(0, 6) for _ in range(modules)) for _ in range(2))
        between = tuple(random.choice((0, 0, 1, 3)) for _ in range(modules + 1))
        times = Times(run, between, copy, STREAMS[name])
        assert difference(schedule, times, captured) == "", (schedule, times)
        looked_at += 1
    assert looked_at == (106 if captured else 112)


def test_what_a_planner_reckons_with_is_the_same() -> None:
    """``pace`` knows nothing of programs. (It has no stream among others that is the compute
    stream's.)"""
    for seed in range(CASES):
        schedule, times, captured = at_random(Random(seed))
        if times.streams == STREAMS["mixed"]:
            continue
        streams = 0 if times.streams.shared else len(times.streams.copies)
        reckoned = (replay_pace if captured else pace)(
            actions_of(schedule, times), schedule.ring.slots, streams
        )
        assert reckoned is not None
        assert reckoned / schedule.period == pass_time(schedule, times, captured), seed


# ---- what is compared with is the program itself, and of all kinds


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("policy", policies.NAMED.values(), ids=lambda policy: policy.name)
def test_what_is_reckoned_is_the_listing(policy: policies.Policy, name: str) -> None:
    schedule = policy(Ring(5, 3))
    times = Times((1,) * 5, (0,) * 6, (1,) * 5, STREAMS[name])
    for captured in (False, True)[: 1 + (schedule.period == 1)]:
        found = listing_of(schedule, times, 3, captured, beside=False)
        program = (lower_captured if captured else lower)(schedule, times.streams)
        assert [one.operation for one in found] == [one.operation for one in program.listing(3)]


def test_the_random_cases_are_of_every_kind() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(CASES):
        schedule, times, captured = at_random(Random(seed))
        found = steady(schedule, times, captured)
        streams = next(name for name, one in STREAMS.items() if one == times.streams)
        kinds[f"{streams}{', captured' * captured}"] += 1
        bare = sum(times.run) + sum(times.between)
        kinds["longer than the runs"] += found.time > bare
        kinds["as long as the runs"] += 0 < found.time == bare and bool(schedule.copies)
        # The compute stream is one line: two ways round that change places on it are two periods
        # together or one each, and the longer of those is no shorter than their mean.
        assert found.passes == schedule.period, seed
        kinds["several passes a period"] += schedule.period > 1
        kinds["no whole number"] += found.time.denominator > 1
        findings = check(schedule)
        kinds["useless refills"] += bool(findings.lints)
        assert findings.safe, seed
    least = {"no whole number": 20}
    for kind in (*STREAMS, *(f"{name}, captured" for name in STREAMS)):
        least[kind] = 20
    least |= {"longer than the runs": 50, "as long as the runs": 20}
    least |= {"several passes a period": 20, "useless refills": 20}
    assert {kind: kinds[kind] for kind in least if kinds[kind] < least[kind]} == {}, kinds


# ---- against the clock of proofs.timed, which knows the host and holds the slots' bytes

SCALE = 10**6


@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("name", STREAMS)
def test_executed_with_scaled_delays_a_pass_takes_the_scaled_time(
    name: str, captured: bool
) -> None:
    """Where fences take 1 and all else a million times its time, or 1: the fences of a pass are
    what it may take longer."""
    random = Random(name)
    for policy in policies.NAMED.values():
        schedule = policy(Ring(5, 3))
        if policy is policies.modular or (captured and schedule.period > 1):
            continue
        times = Times(
            tuple(random.randint(0, 5) for _ in range(5)),
            tuple(random.randint(0, 2) for _ in range(6)),
            tuple(random.randint(0, 5) for _ in range(5)),
            STREAMS[name],
        )
        measured, tasks = executed(schedule, times, captured)
        most = SCALE * steady(schedule, times, captured).time + tasks
        assert most - tasks <= measured <= most, policy.name


def executed(schedule: Schedule, times: Times, captured: bool) -> tuple[Fraction, int]:
    """A pass of proofs.timed, and the tasks of one."""
    modules, periods = schedule.ring.modules, 24
    listing = listing_of(schedule, times, periods, captured)
    cost = {"Run": (*times.run, *times.between), "Copy": times.copy}
    tasks = write_out(listing, times.streams).tasks
    delays = [
        max(1, SCALE * costs[one.operation.module])
        if (costs := cost.get(type(one.operation).__name__))
        else 1
        for one in tasks
    ]
    done = execute(listing, delays, times.streams)
    ends = [
        end
        for task, end in zip(tasks, done.ends, strict=True)
        if isinstance(task.operation, Run) and task.operation.module == 2 * modules
    ]
    time = Reckoned(ends, []).time(schedule.period)
    assert time is not None, "these passes repeat"
    return time, len(tasks) // len(ends) + 1
