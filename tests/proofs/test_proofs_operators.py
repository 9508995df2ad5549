"""Each operator of the policies' arithmetic, turned into its neighbour, is noticed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from proofs.agreement import BOUND, disagreement
from proofs.claims import claims
from proofs.mutation import changed as replaced
from proofs.obligation import System, discharge
from proofs.search import first
from schedule import Ring, arithmetic

FUNCTIONS = (
    "cyclic_slot",
    "block_count",
    "best_distance",
    "balanced_slot",
    "alternating_slot",
    "double_buffer_slot",
    "single_buffer_slot",
    "modular_target",
    "slot_local_target",
    "restart_refill",
    "one_ahead_refill",
    "on_demand_refill",
    "rotating_passes",
    "scan",
    "derived_target",
)
NEIGHBOUR: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
EQUIVALENT = {
    # At the step that is added both branches give block `longer`, offset 0.
    "balanced_slot: if step <= longer * (short + 1):",
    # For K == N, which is added, every target is the module itself, whose slot is its own.
    "slot_local_target: if slots <= modules and target % slots != index % slots:",
}


SOURCE = inspect.getsource(arithmetic)


def operators(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, Any, list[Any]]]:
    """Every operator in the functions: where it is, its node, and the list that holds it."""
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name in FUNCTIONS:
            for statement in function.body:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Compare):
                        yield function, node, node.ops
                    elif isinstance(node, ast.BinOp | ast.BoolOp):
                        yield function, node, [node.op]


def places() -> list[tuple[int, int]]:
    """Which operators there are: the number of the node, and of the operator in it."""
    found = enumerate(operators(ast.parse(SOURCE)))
    return [(at, n) for at, (_, _, ops) in found for n in range(len(ops))]


@cache
def changed(at: int, n: int) -> tuple[str, str, ast.Module]:
    """The function, the line that was changed in it, and the whole tree with that change."""
    tree = ast.parse(SOURCE)
    function, node, ops = list(operators(tree))[at]
    before = ast.unparse(function).splitlines()
    ops[n] = NEIGHBOUR[type(ops[n])]()
    if not isinstance(node, ast.Compare):
        node.op = ops[0]
    after = ast.unparse(function).splitlines()
    (line,) = (new for old, new in zip(before, after, strict=True) if old != new)
    return function.name, f"{function.name}: {line.strip()}", tree


def with_the_change(at: int, n: int) -> System:
    _, text, tree = changed(at, n)
    return replaced(System(), "arithmetic", ast.unparse(tree), text)


def noticed(system: System, function: str) -> str | None:
    """What notices a change in that function: the enumeration, or else an obligation."""
    try:
        found = first(disagreement(system, n) for n in range(1, BOUND + 1)).found
    except ArithmeticError as error:  # a division by zero: the run of all claims stops there
        return f"{type(error).__name__}: {error}"
    return found or next(unproved(system, function), None)


def unproved(system: System, function: str) -> Iterator[str]:
    """The obligations of claims 2, 3, 4 and 6 that are not proved, of those that run it."""
    only = {
        "balanced_slot": ["balanced: slots"],
        "double_buffer_slot": ["double_buffer: slots"],
        "single_buffer_slot": ["single_buffer: slots"],
    }.get(function)
    for claim in claims(system):
        if claim.number in (2, 3, 4, 6):
            for obligation in claim.obligations:
                if only is None or obligation.name in only:
                    outcome = discharge(obligation)
                    if not outcome.proved:
                        yield f"claim {claim.number}, {obligation.name}: {outcome.reason}"


def parameters(wanted: bool) -> list[Any]:
    """The changes that make a difference, or those that make none, named by their line."""
    found = []
    for place in places():
        _, text, _ = changed(*place)
        if (text not in EQUIVALENT) is wanted:
            found.append(pytest.param(*place, id=text))
    return found


@pytest.mark.parametrize(("at", "n"), parameters(True))
def test_the_neighbouring_operator_is_noticed(at: int, n: int) -> None:
    function, text, _ = changed(at, n)
    assert noticed(with_the_change(at, n), function), f"nothing notices {text}"


@pytest.mark.parametrize(("at", "n"), parameters(False))
def test_what_need_not_be_noticed_is_the_same_function(at: int, n: int) -> None:
    function, _, _ = changed(at, n)
    assert differs(function, with_the_change(at, n)) is None


def test_the_whole_arithmetic_was_changed() -> None:
    found = [changed(*place) for place in places()]
    texts = {text for _, text, _ in found}
    assert len(found) == len(texts) == 66
    assert {function for function, _, _ in found} == set(FUNCTIONS) - {"scan"}  # it has none
    assert texts >= EQUIVALENT
    assert len(parameters(False)) == len(EQUIVALENT)


def differs(function: str, system: System) -> Ring | None:
    """The first ring to 24x24 at which the changed function gives something else."""
    for modules in range(1, 25):
        for slots in range(1, 25):
            ring = Ring(modules, slots)
            if values(arithmetic, function, ring) != values(system.arithmetic, function, ring):
                return ring
    return None


def values(module: Any, function: str, ring: Ring) -> list[Any]:
    """All that the function gives for one ring that it is meant for."""
    call, steps = getattr(module, function), range(ring.modules)
    if function == "double_buffer_slot" and ring.slots < 2:
        return []
    if function == "derived_target":
        return [call(step, later) for step in steps for later in steps]
    if function.endswith("_slot"):
        return [outcome(call, step, ring) for step in steps]
    return [outcome(call, step, ring.slots, ring.modules) for step in steps]


def outcome(call: Any, *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except ZeroDivisionError:
        return "raises"
