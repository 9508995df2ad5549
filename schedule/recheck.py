"""Is a certificate true? Read this file to believe it: it uses no other part of Ringproof.

A certificate names a ring of N modules and K slots, the slot that each step of a period runs from,
and which module is copied into which slot at each boundary. It claims, for ever after the preload:

  ownership  no copy replaces weights that the slot's next run reads;
  identity   each run finds its own module in its slot, and the copy that brought it is the one
             that ``brought`` names: its boundary, in every period but the first;
  progress   that copy came after the slot's last run of another module, which found its own there;
  closure    the second period goes as all later ones do: at its start each slot holds what the
             period last copied into it, or, if it copies nothing there, the preload's module.

So: start with the preload, go through two periods, and look at each copy and each run. Steps are
numbered from 0; at a step module ``step % N`` runs. Order: on enter (of a pass), before the run,
the run, after it, on leave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

KEYS = "certificate ringproof policy modules slots claims slot_of preload enter before after leave"
FIELDS = (*KEYS.split(), "brought", "sha256")
CLAIMS = ["ownership", "progress", "identity", "closure"]
LARGEST = 1_000_000
Event = tuple[str, int, int, int]
"""(half of a boundary or "run", step, slot, module)"""


class Refuted(ValueError):
    """The first statement of the certificate that is not true."""


def need(true: bool, statement: str) -> None:
    if not true:
        raise Refuted(statement)


def recheck(found: Any) -> None:
    """Refuted, with the first statement that fails, unless every claim of the document holds."""
    need(isinstance(found, dict) and set(found) == set(FIELDS), f"its fields are {FIELDS}")
    need(found["certificate"] == 1 and type(found["certificate"]) is int, "certificate is 1")
    need(found["claims"] == CLAIMS, f"claims is {CLAIMS}")
    names = [found["ringproof"], found["policy"]]
    need(all(type(one) is str and one.isprintable() for one in names), "names can be printed")
    modules, slots = numbers([found["modules"], found["slots"]], "modules and slots", LARGEST + 1)
    need(modules >= 1 and slots >= 1, "modules and slots are at least 1")
    slot_of = numbers(found["slot_of"], "slot_of", slots)
    steps = len(slot_of)
    need(steps > 0 and steps % modules == 0, f"slot_of has a multiple of {modules} steps")
    preload = [copy(one, "preload", slots, modules) for one in items(found["preload"], "preload")]
    period = list(events(found, slot_of, slots, modules))
    brought = items(found["brought"], "brought")
    need(len(brought) == steps, f"brought has {steps} entries")
    for one in brought:
        good = type(one) is list and list(map(type, one)) == [str, int]
        need(good, "brought has pairs of a half and a step")

    whole = [("preload", 0, *one) for one in preload] + period
    reads = next_runs(whole)
    holds: dict[int, tuple[int, list[Any]]] = {}
    for number, start in enumerate((0, len(preload))):
        for at in range(start, len(whole)):
            half, step, slot, module = whole[at]
            where = f"period {number}, {half} {step}: "
            held, by = holds.get(slot, (-1, []))
            if half == "run":
                need(held == module, f"{where}slot {slot} holds module {module}")
                if number == 1:
                    need(brought[step] == by, f"{where}it was brought at {brought[step]}")
            else:
                safe = held in (-1, module) or held != reads[at]
                need(safe, f"{where}slot {slot}'s next run is not module {held}'s")
                holds[slot] = (module, [half, step])
    need(found["sha256"] == digest(found), f"sha256 is {digest(found)}")


def next_runs(period: list[Event]) -> list[int]:
    """By event, the module that runs next from its slot, round the period's end; -1 for none."""
    found: dict[int, int] = {}
    reads = [-1] * len(period)
    for at in reversed(range(2 * len(period))):  # what is left behind by the first round is needed
        half, _, slot, module = period[at % len(period)]
        if half == "run":
            found[slot] = module
        reads[at % len(period)] = found.get(slot, -1)
    return reads


def events(found: Any, slot_of: list[int], slots: int, modules: int) -> Iterator[Event]:
    """One period's copies and runs, in the order in which the host issues them."""
    tables = {name: items(found[name], name) for name in ("enter", "before", "after", "leave")}
    for name, table in tables.items():
        length = len(slot_of) // modules if name in ("enter", "leave") else len(slot_of)
        need(len(table) == length, f"{name} has {length} entries")
    for step, slot in enumerate(slot_of):
        number, module = divmod(step, modules)
        halves = [("before", step), ("run", step), ("after", step)]
        halves = [("enter", number)] * (module == 0) + halves
        for half, at in halves + [("leave", number)] * (module == modules - 1):
            if half == "run":
                yield half, step, slot, module
            else:
                for one in items(tables[half][at], f"{half}[{at}]"):
                    yield half, step, *copy(one, half, slots, modules)


def copy(one: Any, name: str, slots: int, modules: int) -> tuple[int, int]:
    need(len(items(one, name)) == 2, f"{name} has pairs of a slot and a module")
    return numbers(one[:1], name, slots)[0], numbers(one[1:], name, modules)[0]


def items(value: Any, name: str) -> list[Any]:
    need(isinstance(value, list), f"{name} is a list")
    return list(value)


def numbers(value: Any, name: str, size: int) -> list[int]:
    good = all(type(one) is int and 0 <= one < size for one in items(value, name))
    need(good, f"{name} has integers from 0 to {size - 1}")
    return list(value)


def digest(found: dict[str, Any]) -> str:
    """The hash of all but the hash. It shows a change; it proves nothing."""
    rest = {name: value for name, value in found.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
