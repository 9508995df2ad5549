"""Programs, executed operation by operation: eager, with a module skipped, with a block written,
and captured. Whole ones are right under every seed. With a fault put into the lowering they are
wrong under some seed, or the device refuses them, just where the clocks say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest

from proofs.cases import Case, cases
from proofs.mutants_program import PROGRAM_MUTANTS
from proofs.mutation import Mutant, apply
from proofs.obligation import System
from schedule import policies
from schedule.order import order
from schedule.properties import MEANING
from schedule.ring import Ring
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.executor import Expected, outcome, replay_line, right
from tests.simdevice.offloads import MORE
from tests.simdevice.test_simdevice_fences import RUN_WITH

SEEDS = {"random": 4 * MORE, "compute": 2 * MORE, "copies": 2 * MORE}
RINGS = (Ring(1, 1), Ring(2, 1), Ring(3, 2), Ring(4, 3), Ring(3, 3), Ring(2, 3))
SYSTEM = System()


def safe(name: str, ring: Ring) -> bool:
    """Whether the policy has a schedule for this ring, and a safe one."""
    policy = policies.named(name)
    return ring.slots >= policy.least_slots and SYSTEM.verifier.check(policy(ring)).safe


@pytest.mark.parametrize("name", policies.NAMED)
def test_whole_programs_are_right_under_every_seed(sim: SimDevice, name: str) -> None:
    for ring in RINGS:
        whole = cases(SYSTEM, policies.named(name), ring) if safe(name, ring) else ()
        for case in whole:
            expected = Expected(case.listing)
            for adversary, seeds in SEEDS.items():
                for seed in range(seeds):
                    with sim.steps(seed, adversary):
                        given = right(case.listing, case.streams, expected)
                    assert given, replay_line(name, ring, case.name, seed, adversary)


def test_a_failing_program_is_replayed_by_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = replay_line(
        "chain", Ring(3, 2), "N=3, K=2, chain, one copy stream, captured", 5, "copies"
    )
    command, code = text.rstrip('"').split(' "')
    assert command == "python -c"
    exec(code, {})
    assert capsys.readouterr().out == "right\n"


def test_an_unsafe_schedule_is_wrong_under_every_seed(sim: SimDevice) -> None:
    """Its program is perfectly ordered: what is wrong is the schedule. Where misses are reloaded,
    the same schedule is right."""
    for case in cases(SYSTEM, policies.named("modular"), Ring(3, 2)):
        for adversary in ADVERSARIES:
            for seed in range(2 * MORE):
                with sim.steps(seed, adversary):
                    given = outcome(case.listing, case.streams, named=True)
                assert given == ("right" if case.guarded else "wrong"), case.name


# ---- faults in the lowering

MUTANTS = {mutant.name: mutant for mutant in PROGRAM_MUTANTS}
FORK = "waits for an event that was recorded outside the capture"
JOIN = "was forked into the capture and not joined"
PAGEABLE = "not allowed in a capture: a copy from or to pageable memory"
CHAIN = "N=3, K=2, chain, one copy stream"
SHOWS: dict[str, dict[str, str]] = {
    "no fork event": {CHAIN: "wrong", f"{CHAIN}, captured": FORK},
    "no wait for the copy": {CHAIN: "wrong", f"{CHAIN}, captured": "wrong"},
    "stream-wide wait replaced by nothing": {CHAIN: "wrong", f"{CHAIN}, captured": FORK},
    "wait on a stale record": {CHAIN: "wrong", f"{CHAIN}, captured": "wrong"},
    "two copy streams without order": {"N=3, K=1, chain, two copy streams, skipped": "wrong"},
    "a host write during a copy": {f"{CHAIN}, written": "wrong"},
    "a host write during a run": {f"{CHAIN}, written": "wrong"},
    "nothing is joined": {f"{CHAIN}, captured": JOIN},
    "unjoined capture": {f"{CHAIN}, captured": JOIN},
    "capture waiting on an outside event": {f"{CHAIN}, captured": FORK},
    "replay without join": {f"{CHAIN}, captured": "wrong"},
    "pageable source inside a capture": {f"{CHAIN}, captured": PAGEABLE},
}
"""By mutant, programs and what they show under some seed: a wrong result, or the device's error."""

HARMLESS: dict[str, tuple[str, ...]] = {
    # What such a wait is for is recorded never, or after it: it waits for nothing.
    "capture waiting on an outside event": ("two copy streams", "captured"),
    # What a slot is given before a capture nobody reads: in it nothing runs, and behind it another
    # module is loaded there.
    "two copy streams without order": ("two copy streams", "captured, in pieces"),
}
"""By mutant, of which programs no seed shows what the clocks find: their names have all of this."""


@cache
def mutated(mutant: Mutant) -> tuple[Case, ...]:
    """The programs that the mutant changes."""
    return tuple(_mutated(mutant))


def _mutated(mutant: Mutant) -> Iterator[Case]:
    system = apply(mutant, SYSTEM)
    for name in ("chain", "rotating", "on_demand", "restart"):
        for ring in (Ring(3, 1), Ring(3, 2)):
            policy = policies.named(name)
            whole = {case.name: case for case in cases(SYSTEM, policy, ring)}
            for case in cases(system, policy, ring):
                if case.listing != whole[case.name].listing:
                    wanted = Expected(whole[case.name].listing)
                    assert Expected(case.listing).results() == wanted.results()
                    yield case


def outcomes(sim: SimDevice, case: Case) -> set[str]:
    """What some seeds show; of a program with a fault more of them, until it shows."""
    found, faulty = set(), not order(case.listing, case.streams).safe
    for seed in range(40 * MORE):
        if seed >= 3 * MORE and not (faulty and found == {"right"}):
            break
        for adversary in ADVERSARIES:
            with sim.steps(seed, adversary):
                found.add(outcome(case.listing, case.streams))
    return found


KEEPS_ANOTHER = "the write of another slot"
FINDS_OTHERS = {
    "a graph that needs nothing": {"captured, cut short", "captured, in pieces"},
    "a graph that leaves nothing": {"captured, in pieces"},
}
"""By mutant of what a host believes of a graph, the lowerings that it changes."""
MEANS_ANOTHER = "a replay without records"


def test_every_mutant_of_the_lowering_is_executed() -> None:
    """Here, or with a model."""
    assert {*SHOWS, *RUN_WITH, *FINDS_OTHERS, KEEPS_ANOTHER, MEANS_ANOTHER} == {*MUTANTS}


@pytest.mark.parametrize("name", FINDS_OTHERS)
def test_a_replay_finds_other_modules_than_its_own(sim: SimDevice, name: str) -> None:
    """No race: they are read whatever the timing, where all that is needed was loaded before."""
    policy, ring, found = policies.named("chain"), Ring(3, 2), set()
    faulty = {case.name: case for case in cases(apply(MUTANTS[name], SYSTEM), policy, ring)}
    for case in cases(SYSTEM, policy, ring):
        changed = faulty[case.name].listing != case.listing
        found |= {case.name.split(", ", 4)[-1]} if changed else set()
        for adversary in ADVERSARIES:
            with sim.steps(0, adversary):
                assert outcome(case.listing, case.streams, named=True) == "right"
                given = outcome(faulty[case.name].listing, case.streams, named=True)
            assert given == ("wrong" if changed else "right"), case.name
    assert found == FINDS_OTHERS[name]


def test_the_records_of_a_replay_are_for_the_clocks_alone(sim: SimDevice) -> None:
    """No race: the stream that waits for them did the replay itself. Without them the waits mean
    other copies than the latest ones."""
    found = Counter[str]()
    for case in mutated(MUTANTS[MEANS_ANOTHER]):
        faults = {one.property for one in order(case.listing, case.streams).faults}
        found.update(faults)
        for seed, adversary in product(range(9 * MORE), ADVERSARIES if faults else ()):
            with sim.steps(seed, adversary):
                assert outcome(case.listing, case.streams, named=True) == "right", case.name
    assert found == {MEANING: 14}


def test_the_write_of_another_slot_keeps_other_bytes(sim: SimDevice) -> None:
    """No race: the host writes something else, whatever the timing."""
    policy, ring = policies.named("chain"), Ring(4, 3)
    whole = {case.name: case for case in cases(SYSTEM, policy, ring)}
    faulty = apply(MUTANTS[KEEPS_ANOTHER], SYSTEM)
    case = next(one for one in cases(faulty, policy, ring) if "written" in one.name)
    expected = Expected(whole[case.name].listing)
    for adversary in ADVERSARIES:
        with sim.steps(0, adversary):
            assert right(whole[case.name].listing, case.streams, expected)
            assert not right(case.listing, case.streams, expected)


@pytest.mark.parametrize("name", SHOWS)
def test_a_fault_in_the_lowering_shows(sim: SimDevice, name: str) -> None:
    by_name = {case.name: case for case in mutated(MUTANTS[name])}
    for case, shown in SHOWS[name].items():
        found = outcomes(sim, by_name[case])
        if shown == "wrong":
            assert "wrong" in found <= {"right", "wrong"}  # it is a matter of timing
        else:
            (error,) = found  # and the form of a capture is not
            assert shown in error


@pytest.mark.parametrize("name", SHOWS)
def test_it_shows_where_the_clocks_find_it(sim: SimDevice, name: str) -> None:
    harmless = 0
    for case in mutated(MUTANTS[name]):
        faulty, found = not order(case.listing, case.streams).safe, outcomes(sim, case)
        if faulty and found == {"right"}:
            assert name in HARMLESS, case.name
            assert all(word in case.name for word in HARMLESS[name]), case.name
            harmless += 1
        else:
            assert (found != {"right"}) == faulty, (case.name, found)
    assert (harmless > 0) == (name in HARMLESS)
