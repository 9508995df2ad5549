"""``python -m schedule plan``: what fits into a memory budget, and what each budget would bring."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from schedule import costsfile
from schedule.costs import Costs
from schedule.errors import CostsError
from schedule.explain import explained, explained_json, option_json, plan_json
from schedule.files import STANDARD_OUTPUT, require_different, write_text
from schedule.front import Front, front
from schedule.frontpicture import picture
from schedule.knobs import vllm_setting
from schedule.plan import Option, Plan, Planner
from schedule.plantext import front_text, plan_text
from schedule.sizes import bytes_of

MOST = 500
"""More budgets are not to be looked at."""


def add_plan(commands: Any) -> None:
    """The command and its options."""
    text = "the best schedule that a memory budget allows; without one, what each budget brings"
    sub = commands.add_parser("plan", help=text, description=text)
    sub.set_defaults(run=run_plan)
    sub.add_argument(
        "--costs", required=True, metavar="FILE", help="from python -m runtime profile"
    )
    sub.add_argument("--memory", metavar="SIZE", help="the budget on the device, like 6GiB")
    sub.add_argument("--plot", metavar="FILE", help="write a picture too; - is standard output")
    sub.add_argument("--captured", action="store_true", help="passes are replays of a graph")
    sub.add_argument("--whole", action="store_true", help="no module is kept in part")
    sub.add_argument("--mix", metavar="NAME=WEIGHT,...", help="what the plan is for")
    knobs = "vLLM's group size, number in group and prefetch step, to be compared; may be repeated"
    sub.add_argument("--knobs", metavar="G,I,S", action="append", default=[], help=knobs)
    sub.add_argument("--points", type=int, help="how many budgets the front and the picture have")
    sub.add_argument("--certificate", metavar="FILE", help="write what was verified there")
    sub.add_argument("--json", action="store_true", help="print JSON")


def run_plan(chosen: argparse.Namespace) -> int:
    """One plan, or the front of all budgets; a picture and a certificate as files."""
    json_at = STANDARD_OUTPUT if chosen.json else None
    places = {"plot": chosen.plot, "certificate": chosen.certificate, "json": json_at}
    require_different(places)
    for option in "plot", "certificate":
        require_different({"costs": chosen.costs, option: places[option]})
    if chosen.memory is None and (chosen.certificate or chosen.knobs):
        raise ValueError("--certificate and --knobs are for one plan; give --memory too")
    if chosen.points is not None and not 2 <= chosen.points <= MOST:
        raise ValueError(f"--points {chosen.points}: give a number from 2 to {MOST}")
    costs = costsfile.read(chosen.costs)
    if chosen.mix is not None:
        costs = mixed_as(costs, chosen.mix)
    planner = Planner(costs, captured=chosen.captured, parts=not chosen.whole)
    knobs = [planner.option(vllm_setting(costs, *_numbers(text))) for text in chosen.knobs]
    plan = None if chosen.memory is None else planner.plan(bytes_of(chosen.memory, "memory"))
    found = front(planner, chosen.points) if plan is None or chosen.plot is not None else None
    _write(chosen, plan, found)
    if STANDARD_OUTPUT not in (chosen.plot, chosen.certificate):
        print(_said(planner, plan, found, tuple(knobs), chosen.json))
    return 0


def mixed_as(costs: Costs, text: str) -> Costs:
    """The costs with these weights, as "decode=64,prefill=1"; workloads that are not named have
    none. CostsError for a workload that is not there, and for what is no weight."""
    known = [one.name for one in costs.workloads]
    weights: dict[str, float] = {}
    for entry in text.split(","):
        name, equals, number = (word.strip() for word in entry.rpartition("="))
        if not equals or name in weights:
            raise CostsError(f"mix: {text!a} is no list of different NAME=WEIGHT")
        if name not in known:
            raise CostsError(f"mix: no workload is called {name!a}; there are {', '.join(known)}")
        try:
            weights[name] = float(number)
        except ValueError:
            raise CostsError(f"mix: {number!a} is no weight of {name}; give a number") from None
    workloads = tuple(replace(one, weight=weights.get(one.name, 0.0)) for one in costs.workloads)
    return replace(costs, workloads=workloads)


def _numbers(text: str) -> Sequence[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 3:
        raise CostsError(f"knobs: {text!a} is no group size, number in group and step, like 8,2,1")
    return numbers


def _write(chosen: argparse.Namespace, plan: Plan | None, found: Front | None) -> None:
    documents = {}
    if chosen.plot is not None:
        assert found is not None, "what is drawn"
        documents[chosen.plot] = picture(found, plan)
    if chosen.certificate is not None:
        assert plan is not None, "what is certified"
        documents[chosen.certificate] = plan.verified.certificate()
    for place, text in documents.items():
        if place != STANDARD_OUTPUT:
            write_text(place, text)
            print(f"wrote {place}", file=sys.stderr)
    sys.stdout.write(documents.get(STANDARD_OUTPUT, ""))  # only now: no path is bad


def _said(
    planner: Planner,
    plan: Plan | None,
    found: Front | None,
    knobs: tuple[Option, ...],
    as_json: bool,
) -> str:
    costs = planner.costs
    if plan is not None:
        full = explained(plan, knobs)
        return _json(costs, explained_json(full)) if as_json else plan_text(full)
    assert found is not None, "a plan, or a front"
    if not as_json:
        return front_text(costs, found, planner.captured)
    plans = [plan_json(one) for one in found.plans]
    others = [option_json(one) for one in found.slot_local]
    return _json(costs, {"captured": planner.captured, "front": plans, "slot_local": others})


def _json(costs: Costs, data: dict[str, Any]) -> str:
    about = {"model": costs.model, "device": costs.device, "torch": costs.torch}
    return json.dumps({**about, "units": "bytes, nanoseconds", **data}, indent=2)
