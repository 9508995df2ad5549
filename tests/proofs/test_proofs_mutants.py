"""Every planted fault is refuted by the claim that it names, with its smallest counterexample."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from proofs.agreement import disagreement
from proofs.claims import claims
from proofs.mutants import MUTANTS
from proofs.mutation import Mutant, StaleMutant, apply, of_lemma, smallest
from proofs.obligation import System, discharge
from proofs.prove import try_mutant
from proofs.report import Verdict
from proofs.search import first
from schedule import Ring, arithmetic, graphs, machine, policy, program, verifier
from schedule.operations import Wait

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
PINNED = {
    "the old rule in the new one's place": "N=3, K=2, slot_local",
    "the head of another slot": "N=3, K=2, slot_local",
    "the old rule mended without saying so": "N=3, K=2, modular",
    "preload one short": "N=1, K=1, modular",
    "swapped slots": "N=2, K=3, modular",
    "self-refill": "N=1, K=1, chain",
    "uneven blocks": "N=4, K=2, balanced",
    "slots outside the ring": "N=2, K=1, modular",
    "keep one module less": "N=3, K=3, double_buffer",
    "closure is not looked at": "N=2, K=1, after: ((), ())",
    "a target past the ring": "the target 3 is not refused but raises IndexError",
    "no WAR guard": "CopyBegins(0, 1) CopyLands(0) ModuleBegins(0, 1) CopyBegins(0, 1)",
    "no WAW guard": "CopyBegins(0, 1) CopyBegins(0, 1)",
    "no RAW guard": "CopyBegins(0, 1) ModuleBegins(0, 1)",
    "no ownership guard": "CopyBegins(0, 1) CopyLands(0) CopyBegins(0, 2)",
    "no identity guard": "ModuleBegins(0, 1)",
    "any refill is progress": "N=2, K=1, after: (((0, 0),), ((0, 0),))",
    "progress survives another module's run": "N=2, K=1, after: ((), ())",
    "a graph that needs nothing": "N=2, K=1, modular, one copy stream, captured, cut short "
    "(clocks: identity; interleavings: identity; solver: identity)",
    "a graph that leaves nothing": "N=2, K=1, modular, one copy stream, captured, in pieces "
    "(clocks: identity; interleavings: identity; solver: identity)",
    "a slot as large as its last module": "N=2, model 3, eager, 11 bytes",
    "what is kept beside the slots is free": "N=2, model 1, eager, 10 bytes",
    "copies count twice": "N=3, model 1, eager, 18 bytes",
    "a replay without records": "N=1, K=1, restart, one copy stream, captured, written "
    "(clocks: meaning; interleavings: meaning; solver: meaning)",
}
GRAPH = ("take", "lower_begin", "lower_end", "lower_replay", "needs", "leaves")
"""What a graph is made by, and what is then said of it."""


# make prove does it for all of them.
@pytest.mark.parametrize("name", PINNED)
def test_the_mutant_is_refuted_with_its_smallest_counterexample(name: str) -> None:
    result = try_mutant(BY_NAME[name], System())
    assert (result.verdict, result.reason) == (Verdict.PROVED, "")
    assert result.size == BY_NAME[name].smallest == PINNED[name]
    assert result.statement == (
        f"refuted by claim {BY_NAME[name].claim}, {BY_NAME[name].obligation or 'enumeration'}"
    )


def test_their_names_are_unique() -> None:
    assert len(MUTANTS) == len(BY_NAME) >= 52
    assert set(PINNED) <= set(BY_NAME)


def test_each_guard_and_effect_of_the_machine_has_its_mutant() -> None:
    killers = {mutant.obligation for mutant in MUTANTS if mutant.module == "machine"}
    assert killers == {
        *(f"CopyBegins {what}" for what in ("allowed", "objected", "elsewhere")),
        *(f"ModuleBegins {what}" for what in ("allowed", "objected", "elsewhere")),
        "CopyLands elsewhere",
        "ModuleEnds elsewhere",
        "effects",
        "base",
    }
    modules = {"arithmetic", "graphs", "guard", "machine", "order", "policy", "program", "verifier"}
    modules |= {"search", "space"}
    assert {mutant.module for mutant in MUTANTS if not of_lemma(mutant)} == modules
    assert {mutant.claim for mutant in MUTANTS} == set(range(13))


def test_each_part_of_a_graph_has_its_mutant() -> None:
    """But where it begins: what it joins there is the lowering's, whose mutants change it too."""
    methods = {name: getattr(one, "fget", one) for name, one in vars(graphs.Graph).items()}
    parts = {name: inspect.getsource(methods[name]) for name in GRAPH}
    mutants = [mutant for mutant in MUTANTS if mutant.module == "graphs"]
    found = [name for mutant in mutants for name in parts if mutant.before in parts[name]]
    assert len(found) == len(mutants)
    assert {*parts} - {*found} == {"lower_begin"}


# ---- what is no refutation

OLD = BY_NAME["the old rule in the new one's place"]


@pytest.mark.parametrize(
    ("mutant", "reason"),
    [
        (replace(OLD, before="if slots < modules or target"), "is not once in schedule.arithmetic"),
        (replace(OLD, before="index % slots"), "is not once in schedule.arithmetic"),
        (replace(OLD, module="machine"), "is not once in schedule.machine"),
    ],
    ids=["gone", "twice", "elsewhere"],
)
def test_a_mutant_whose_text_is_not_there_once_is_stale(mutant: Mutant, reason: str) -> None:
    with pytest.raises(StaleMutant, match=reason):
        apply(mutant, System())
    result = try_mutant(mutant, System())
    assert (result.verdict, result.size) == (Verdict.UNKNOWN, "")
    assert result.reason.startswith(f"stale: {OLD.name}: ")
    assert reason in result.reason


@pytest.mark.parametrize("module", ["arithmetic", "policy", "machine", "verifier"])
def test_a_change_that_changes_nothing_survives(module: str) -> None:
    before = "\nfrom __future__ import annotations\n"
    killers = {"machine": (0, "effects"), "verifier": (1, "use")}
    claim, name = killers.get(module, (4, "closed form"))
    mutant = Mutant("nothing", module, before, f"{before}# nothing\n", claim, name, "none")
    result = try_mutant(mutant, System())
    assert result.verdict is Verdict.MUTANT_SURVIVED
    assert result.verdict.value == 5
    assert result.size == "none"
    assert result.reason == f"claim {claim}, {name} holds in spite of it"


def test_a_fault_that_another_obligation_would_find_survives_the_one_named() -> None:
    result = try_mutant(replace(OLD, claim=6, obligation="modular"), System())
    assert result.verdict is Verdict.MUTANT_SURVIVED


@pytest.mark.parametrize("pinned", ["N=5, K=2, slot_local", "N=3, K=2, chain", "none", ""])
def test_another_smallest_counterexample_disagrees(pinned: str) -> None:
    mutant = replace(BY_NAME["the head of another slot"], smallest=pinned)
    result = try_mutant(mutant, System())
    assert result.verdict is Verdict.DISAGREE
    assert result.verdict.value == 6
    assert result.reason == (
        f"smallest counterexample 'N=3, K=2, slot_local'; pinned is {pinned!r}"
    )


@pytest.mark.parametrize(("claim", "obligation"), [(2, "no such obligation"), (2, None)])
def test_a_mutant_that_names_nothing_is_not_refuted(claim: int, obligation: str | None) -> None:
    result = try_mutant(replace(OLD, claim=claim, obligation=obligation), System())
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason.startswith("raised AssertionError: claim 2 has ")


def test_a_mutant_that_can_not_run_is_not_refuted() -> None:
    fault = "return (ring.modules - 1) // ring.slots - 1"
    result = try_mutant(replace(BY_NAME["uneven blocks"], after=fault), System())
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason.startswith("raised ZeroDivisionError: ")


BEYOND = [
    (
        "no RAW guard",
        "if state.moving[slot] == EMPTY:\n                return Objection(RAW, slot)",
    ),
    ("no identity guard", "if state.holds[slot] == module:"),
]


@pytest.mark.parametrize(("name", "after"), BEYOND)
@pytest.mark.parametrize(("claim", "obligation"), [(0, "ModuleBegins objected"), (1, "use")])
def test_a_machine_that_objects_to_what_is_right_is_refuted(
    name: str, after: str, claim: int, obligation: str
) -> None:
    mutated = apply(replace(BY_NAME[name], after=after), System())
    (found,) = (one for one in claims(mutated)[claim].obligations if one.name == obligation)
    assert not discharge(found).proved


def test_an_objection_to_a_run_is_seen_in_the_step_of_every_policy() -> None:
    mutated = apply(replace(BY_NAME["no RAW guard"], after=BEYOND[0][1]), System())
    (found,) = (one for one in claims(mutated)[2].obligations if one.name == "derived: step")
    outcome = discharge(found)
    assert not outcome.proved
    assert outcome.reason.startswith("RAW (sat with seed ")


MACHINES = [("no identity guard", "identity"), ("no ownership guard", "ownership")]


@pytest.mark.parametrize(("name", "unseen"), MACHINES)
def test_the_agreement_compares_the_machine_with_the_local_check(name: str, unseen: str) -> None:
    mutated = apply(BY_NAME[name], System())
    found = first(disagreement(mutated, modules) for modules in (1, 2, 3)).found
    assert found is not None
    assert found.startswith("N=3, K=2, modular: a run of the machine violates {")
    seen, _, checked = found.partition("the local check")
    assert unseen not in seen
    assert unseen in checked


# ---- the change is the real code with one fault


def test_a_mutant_leaves_the_real_code_alone() -> None:
    before = inspect.getsource(arithmetic), arithmetic.slot_local_target(1, 2, 3)
    mutated = apply(OLD, System())
    assert mutated.arithmetic.slot_local_target(1, 2, 3) == 0
    assert (inspect.getsource(arithmetic), arithmetic.slot_local_target(1, 2, 3)) == before
    assert before[1] == 1
    assert mutated.arithmetic is not arithmetic
    assert mutated.policy is not policy
    assert sys.modules["schedule.arithmetic"] is arithmetic
    assert policy.slot_local(Ring(3, 2)).after[1][0].module == 1
    assert mutated.policy.slot_local(Ring(3, 2)).after[1][0].module == 0
    assert (mutated.machine, mutated.verifier) == (machine, verifier)


def test_a_mutant_changes_one_text() -> None:
    for mutant in MUTANTS:
        lemma = of_lemma(mutant)
        module = import_module(mutant.module) if lemma else getattr(System(), mutant.module)
        source = inspect.getsource(module)
        assert source.count(mutant.before) == 1, mutant.name
        assert mutant.before != mutant.after


def test_a_mutated_policy_makes_mutated_tables() -> None:
    mutated = apply(BY_NAME["swapped slots"], System())
    true = policy.modular(Ring(3, 2)).after
    false = mutated.policy.modular(Ring(3, 2)).after
    assert [refills[0].module for refills in true] == [refills[0].module for refills in false]
    assert [refills[0].slot for refills in true] == [0, 0, 1]
    assert [refills[0].slot for refills in false] == [0, 1, 0]


def test_a_mutated_lowering_makes_mutated_graphs() -> None:
    """What a graph joins is the lowering's; what it needs is its own."""

    def waits(module: Any) -> list[str]:
        captured = module.lower_captured(policy.chain(Ring(3, 2)))
        joins = (captured.capture[:2], captured.capture[-2:], captured.replay[:2])
        return [str(one) for join in joins for one in join if isinstance(one, Wait)]

    mutated = apply(BY_NAME["nothing is joined"], System())
    assert mutated.graphs is not graphs
    assert waits(mutated.graphs) == []
    assert waits(graphs) == [
        "compute: wait for drained[0]",
        "compute: wait for drained[0] of graph pass",
        "compute: wait for drained[0]",
    ]
    assert apply(BY_NAME["a graph that needs nothing"], System()).program is program


@pytest.mark.parametrize("module", ["arithmetic", "policy", "machine", "verifier"])
def test_the_true_code_has_no_counterexample(module: str) -> None:
    assert smallest(replace(OLD, module=module), System()) == "none"
