"""Claims 9 and 11: the engines agree, a blind one is seen, and programs are as their schedules."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from proofs import engines
from proofs.cases import Bounds, Case, cases
from proofs.claims import claims
from proofs.engines import difference, disagreement, normal, refute, settled, together
from proofs.faulty import FAULTY
from proofs.mutants_order import ORDER_MUTANTS
from proofs.mutants_program import PROGRAM_MUTANTS
from proofs.mutation import Mutant, apply
from proofs.obligation import System
from proofs.prove import of_search, prove_claim, search_at
from proofs.report import Verdict
from proofs.search import first
from schedule import Refill, Ring, Schedule, policies
from schedule.explore import LIMIT, explore
from schedule.operations import (
    COMPUTE,
    COPY,
    HOST,
    RAN,
    Copy,
    Record,
    Run,
    Streams,
    Wait,
    Write,
    landed,
)
from schedule.program import lower
from schedule.properties import IDENTITY, RAW
from schedule.tasks import Fault, write_out
from tests.schedule.listings import TWO, listing, refill, run

SYSTEM = System()
BLIND = {mutant.name: mutant for mutant in ORDER_MUTANTS if mutant.obligation is None}
BY_NAME = {mutant.name: mutant for mutant in PROGRAM_MUTANTS}
ONE = Bounds(1, 1, 1, 1, solver=1)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The searches go to 8x8 in the command."""
    small = Bounds(2, 2, 2, 2, solver=1)
    monkeypatch.setattr(engines, "EVERY_RUN", small)
    monkeypatch.setattr("proofs.claims.EVERY_RUN", small)


def verdict(number: int, system: System) -> tuple[Verdict, str]:
    (claim,) = (claim for claim in claims(system) if claim.number == number)
    result = prove_claim(claim)
    return result.verdict, result.reason


# ---- claim 11


def test_the_engines_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one ring, where those below disagree; ``make prove`` looks at many."""
    monkeypatch.setattr("proofs.claims.EVERY_RUN", ONE)
    monkeypatch.setattr(engines, "EVERY_RUN", ONE)
    assert verdict(11, SYSTEM) == (Verdict.HOLDS_TO_BOUND, "")


MORE = {
    "clocks blind to WAR": "nothing more, interleavings WAR at task 11, WAR at task 6",
    "clocks blind to RAW": "nothing more, interleavings RAW at task 4, RAW at task 9",
    "clocks blind to what a wait means": (
        "nothing more, interleavings meaning at task 10, meaning at task 4"
    ),
    "clocks blind to host writes": "nothing more, interleavings block at task 20",
    "a pageable block is read later": "block at task 20 more, interleavings nothing",
    "what the host waited for is forgotten": (
        "RAW at task 11, RAW at task 5, WAR at task 14, WAR at task 8 more, interleavings nothing"
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_a_blind_clock_disagrees(name: str) -> None:
    mutant = BLIND[name]
    expected = f"{mutant.smallest}: clocks find {MORE[name]}"
    assert verdict(11, apply(mutant, SYSTEM)) == (Verdict.DISAGREE, expected)


@pytest.mark.parametrize("name", ["clocks blind to WAW", "clocks blind to joins"])
def test_a_clock_blind_to_what_a_graph_needs_disagrees(name: str) -> None:
    blind = apply(BLIND[name], SYSTEM)
    found = first(disagreement(blind, modules) for modules in (1, 2)).found
    assert found is not None
    head, _, rest = found.partition(":")
    assert head == BLIND[name].smallest
    assert rest.startswith(" clocks find nothing more, interleavings ")


def case(*operations: Any, streams: Streams = Streams()) -> Case:  # noqa: B008
    return Case("by hand", listing(*operations), streams, fault="by hand")


def test_a_clock_blind_to_identity_disagrees_on_the_old_rule() -> None:
    blind = apply(BLIND["clocks blind to identity"], SYSTEM)
    program = Case("old", lower(policies.modular(Ring(3, 2))).listing(2), Streams())
    assert difference(SYSTEM, program, solver=True) is None
    assert difference(blind, program, solver=True) == (
        "old: clocks find nothing more, interleavings identity at task 21, identity at task 39"
    )


def test_a_clock_that_is_wrong_by_itself_is_in_the_wrong() -> None:
    """Made up here: it sees a RAW hazard wherever something was copied."""
    before = "uncovered(RAW, clock, later(state.copied[slot]"
    after = before.replace("clock,", "NOTHING,")
    nervous = Mutant("nervous", "order", before, after, 11, None, "")
    found = verdict(11, apply(nervous, SYSTEM))
    assert found == (
        Verdict.DISAGREE,
        "N=1, K=1, modular, one copy stream, as it is: clocks find RAW at task 11, RAW at task 5 "
        "more, interleavings nothing",
    )


def test_interleavings_that_see_nothing_disagree(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(*arguments: Any) -> Any:
        return replace(explore(*arguments), faults=frozenset())

    monkeypatch.setattr("proofs.prove.explore", blind)
    assert verdict(11, SYSTEM) == (
        Verdict.DISAGREE,
        "N=1, K=1, modular, one copy stream, no fork: clocks find WAR at task 11, WAR at task 6 "
        "more, interleavings nothing",
    )


def test_a_solver_that_sees_nothing_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "overlaps", lambda _: frozenset())
    assert verdict(11, SYSTEM) == (
        Verdict.DISAGREE,
        "N=1, K=1, modular, one copy stream, no fork: clocks find WAR at task 11, WAR at task 6 "
        "more, the solver nothing",
    )


# ---- one program


UNORDERED = (Copy(COPY, 0, 0), Run(COMPUTE, 0, 0))


def test_past_the_bound_only_what_the_clocks_do_not_find_disagrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unordered = case(Copy(COPY, 0, 0), Copy("copy 1", 0, 1), streams=TWO)
    blind = apply(BLIND["clocks blind to WAW"], SYSTEM)
    found = "by hand: clocks find nothing more, interleavings WAW at task 1"
    for states, expected in ((1, None), (3, found), (100, found)):
        monkeypatch.setattr(engines, "STATES", states)
        assert explore(unordered.listing, TWO, states).complete is (states == 100)
        assert difference(SYSTEM, unordered, solver=False) is None
        assert difference(blind, unordered, solver=False) == expected


def test_faults_of_the_engines_are_compared_by_stream() -> None:
    tasks = write_out(listing(*UNORDERED, Copy(COPY, 0, 0)), Streams())
    assert normal([Fault(RAW, 1, 0)], tasks) == {(RAW, 1, COPY)}
    assert normal([Fault(RAW, 1, 0), Fault(RAW, 1, 2)], tasks) == {(RAW, 1, COPY)}
    assert normal([Fault("joined", 1, None, "why")], tasks) == {("joined", 1, None)}


def test_identity_is_compared_where_there_is_no_hazard() -> None:
    tasks = write_out(listing(*UNORDERED), Streams())
    assert normal([Fault(IDENTITY, 1), Fault("meaning", 1)], tasks) == {
        (IDENTITY, 1, None),
        ("meaning", 1, None),
    }
    one = normal([Fault(IDENTITY, 1)], tasks)
    other = normal([Fault(RAW, 1, 0)], tasks)
    assert settled(one) == [{(IDENTITY, 1, None)}]
    assert settled(one, other) == [frozenset(), {(RAW, 1, COPY)}]


def test_what_each_engine_finds() -> None:
    assert refute(SYSTEM, case(*refill(0, 0), *run(0, 0))) == {"clocks": [], "interleavings": []}
    assert refute(SYSTEM, case(*UNORDERED)) == {
        "clocks": ["RAW"],
        "interleavings": ["RAW", "identity"],
        "solver": ["RAW"],
    }


# ---- the programs


def test_the_programs_of_a_ring() -> None:
    found = list(cases(SYSTEM, policies.NAMED["chain"], Ring(3, 2)))
    kinds = ("one copy stream", "two copy streams", "copies on the compute stream")
    graphs = (", captured", ", captured, written", ", captured, cut short", ", captured, in pieces")
    lowerings = ("", ", written", ", skipped", *graphs)
    head = "N=3, K=2, chain, "
    assert [one.name for one in found] == [
        f"{head}{kind}{how}" for kind in kinds for how in lowerings
    ]
    assert [one.plain for one in found] == [True, False, False, True, False, False, False] * 3
    guarded = [False, False, True, False, False, True, True]
    assert [one.guarded for one in found] == guarded * 3
    assert [one.streams.copies for one in found[::7]] == [(COPY,), TWO.copies, (COMPUTE,)]
    assert len({one.listing for one in found}) == len(found)


def test_a_schedule_of_two_passes_is_not_captured() -> None:
    def by_turns(ring: Ring) -> Schedule:
        both = (Refill(0, 0), Refill(1, 0))
        none: Any = ((), ())
        return Schedule(ring, "by turns", (0, 1), both, none, none, ((both[0],), ()), none)

    by_turns.name = "by turns"  # type: ignore[attr-defined]
    found = list(cases(SYSTEM, by_turns, Ring(1, 2)))  # type: ignore[arg-type]
    assert [one.name.rpartition(", ")[2] for one in found] == [
        *("one copy stream", "written"),
        *("two copy streams", "written"),
        *("copies on the compute stream", "written"),
    ]


def test_a_module_that_is_skipped_is_reloaded_when_it_is_missed() -> None:
    (skipped,) = (
        one.listing
        for one in cases(SYSTEM, policies.NAMED["modular"], Ring(2, 1))
        if one.name == "N=2, K=1, modular, copies on the compute stream, skipped"
    )
    assert [str(one.operation) for one in skipped] == [
        "compute: copy module 0 into slot 0",
        "compute: run module 0 from slot 0",
        "compute: copy module 1 into slot 0",
        "compute: copy module 0 into slot 0",
        "compute: run module 0 from slot 0",
        "compute: copy module 1 into slot 0",
    ]


FENCED = (*refill(0, 0), *run(0, 0), Record(COPY, RAN), Wait(HOST, RAN), Wait(COPY, landed(0)))
LEFT = {
    "as it is": [0, 1, 2, 3, 4, 5, 6, 7, 8],
    "no fork": [1, 2, 3, 4, 5, 7, 8],
    "no wait for the copy": [0, 1, 2, 3, 5, 6, 7, 8],
    "no order of copies": [0, 1, 2, 3, 4, 5, 6, 7],
    "no join": [0, 1, 2, 3, 4, 5, 6, 7, 8],
    "stale record": [0, 1, 3, 2, 4, 5, 6, 7, 8],
    "no wait of the host": [0, 1, 2, 3, 4, 5, 6, 8],
}


@pytest.mark.parametrize("name", LEFT)
def test_what_a_fault_leaves_of_a_listing(name: str) -> None:
    whole = listing(*FENCED)
    assert [whole.index(issued) for issued in FAULTY[name](whole)] == LEFT[name]


def test_faults_that_change_operations() -> None:
    assert set(FAULTY) == {*LEFT, "pageable", "host waits", "another kept", "not loaded anew"}
    whole = listing(*FENCED)
    pageable = [one.operation for one in FAULTY["pageable"](whole)]
    assert pageable == [*FENCED[:2], Copy(COPY, 0, 0, True), *FENCED[3:7], FENCED[8]]
    waits = [one.operation for one in FAULTY["host waits"](whole)]
    assert [one.stream for one in waits if isinstance(one, Wait)] == [HOST] * 4
    assert FAULTY["another kept"](whole) == whole
    (kept,) = FAULTY["another kept"](listing(Write(2, 0)))
    assert kept.operation == Write(3, 0)
    once_more = (*FENCED[:4], Write(0, 0), *FENCED)
    anew = [one.operation for one in FAULTY["not loaded anew"](listing(*once_more))]
    assert anew == [*FENCED[:4], Write(0, 0), *FENCED[:2], *FENCED[3:]]
    assert FAULTY["not loaded anew"](whole) == whole


# ---- claim 9


def test_no_interleaving_of_a_safe_schedule_is_wrong() -> None:
    assert verdict(9, SYSTEM) == (Verdict.HOLDS_TO_BOUND, "")


@pytest.mark.parametrize("name", BY_NAME)
def test_a_fault_of_the_lowering_shows_in_an_interleaving(name: str) -> None:
    head, _, found = BY_NAME[name].smallest.partition(" (clocks: ")
    if found:  # else the parts, which no interleaving shows, are said alone
        head += ": " + found.partition("interleavings: ")[2].partition(";")[0]
    assert verdict(9, apply(BY_NAME[name], SYSTEM)) == (Verdict.VIOLATED, head)


def test_an_unsafe_schedule_must_show_a_wrong_module() -> None:
    verifier: Any = ModuleType("verifier")
    verifier.check = lambda _: SimpleNamespace(safe=False)
    assert together(replace(SYSTEM, verifier=verifier), 1).found == (
        "N=1, K=1, modular, one copy stream: an unsafe schedule, and no interleaving is wrong"
    )


def test_too_many_states_are_said_to_be() -> None:
    (claim,) = (claim for claim in claims(SYSTEM) if claim.number == 9)
    found = search_at(claim, 2, lambda listing, streams, _: explore(listing, streams, 5))
    assert (found.found, found.raised) == (None, "raised Unfinished: more than 6 states")
    result = of_search(claim, found)
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, found.raised)


def test_a_program_as_it_is_is_explored_once_for_both_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def noted(*program: Any) -> Any:
        asked.append(program)
        return explore(*program)

    monkeypatch.setattr(engines, "explore", noted)
    monkeypatch.setattr(engines, "EVERY_RUN", ONE)
    explorer = engines.remembering()
    nine = together(SYSTEM, 1, explorer)
    assert len(asked) == nine.looked_at > 50
    eleven = disagreement(SYSTEM, 1, explorer)
    assert len(asked) == len(set(asked)) == eleven.looked_at
    assert sum(limit == LIMIT for *_, limit in asked) == nine.looked_at


def test_the_runtime_is_given_what_was_looked_at() -> None:
    for policy in policies.NAMED.values():
        assert engines.other_parts(SYSTEM, policy(Ring(3, 2))) is None
    chain = policies.chain(Ring(3, 2))
    late = replace(chain, after=(chain.after[0], chain.after[2], chain.after[1]), policy="another")

    def other(_: Schedule, streams: Streams) -> Any:
        program = lower(chain, streams)
        wrong: Any = SimpleNamespace(parts=lower(late, streams).parts, listing=program.listing)
        return wrong

    program = SimpleNamespace(**{**vars(SYSTEM.program), "lower": other})
    found = engines.other_parts(replace(SYSTEM, program=program), chain)  # type: ignore[arg-type]
    assert found == "one copy stream: the parts of a period"


def test_an_unsafe_schedule_is_wrong_but_still_ordered(monkeypatch: pytest.MonkeyPatch) -> None:
    old = policies.modular, Ring(3, 2)
    monkeypatch.setattr(engines, "rings_of", lambda *_: [old])
    assert together(SYSTEM, 3).found is None
    found = together(apply(BY_NAME["no fork event"], SYSTEM), 3).found
    assert found == "N=3, K=2, modular, one copy stream: WAR"
