"""``python -m schedule plan``: what is printed, JSON, files, and what bad input gets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from schedule import costsfile
from schedule.__main__ import main
from schedule.bounds import lower_bounds
from schedule.costs import Costs, Link
from schedule.errors import CostsError
from schedule.explain import copies, explained, moved
from schedule.plan import Planner
from schedule.plancommand import mixed_as
from schedule.plantext import plan_text
from schedule.recheck import recheck
from schedule.stalls import Stall
from tests.schedule.small_costs import MB, costs

Call = Callable[..., tuple[int, str, str]]
ROOMY = "850MB"


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    Path("costs.json").write_text(costsfile.text(costs()), encoding="ascii")

    def call(*arguments: str, file: str = "costs.json") -> tuple[int, str, str]:
        code = main(["plan", "--costs", file, *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_one_plan(call: Call) -> None:
    code, out, err = call("--memory", ROOMY)
    assert (code, err) == (0, "")
    plan = Planner(costs()).plan(850 * MB)
    lines = out.splitlines()
    assert lines[0] == "small on a test: planned for decode 64 : prefill 1, eager passes"
    assert "budget" in lines[2]
    for said in ("resident", "slots", "copies", "decode waits for", "planned  "):
        assert any(line.startswith(said) for line in lines), said
    for number in (plan.times["decode"], plan.times["prefill"], plan.time, plan.bound):
        assert f"{float(number) / 1e6:.2f}"[:4] in out
    assert f"{100 * plan.gap:.1f}%" in out
    assert {one.name for one in plan.others} <= {re.split("  +", line)[0] for line in lines}


def test_as_json(call: Call) -> None:
    code, out, err = call("--memory", ROOMY, "--json", "--captured", "--knobs", "2,1,1")
    assert (code, err) == (0, "")
    found = json.loads(out)
    model = costs()
    plan = Planner(model, captured=True).plan(850 * MB)
    assert (found["model"], found["device"], found["captured"]) == ("small", "a test", True)
    assert (found["budget"], found["memory"], found["unused"]) == (
        850 * MB,
        plan.memory,
        850 * MB - plan.memory,
    )
    assert found["time"] == float(plan.time)
    assert found["gap"] == plan.gap
    assert found["schedule"]["slot_of"] == list(plan.schedule.slot_of)
    assert len(found["others"]) == len(plan.others)
    assert [one["name"] for one in found["knobs"]] == [
        "vLLM, group size 2, 1 in group, prefetch step 1"
    ]
    for workload in model.workloads:
        mine = found["workloads"][workload.name]
        bound = lower_bounds(model, workload, 800 * MB)[0]
        assert (mine["bound_name"], mine["argument"]) == (bound.name, bound.argument)
        assert mine["time"] == float(plan.times[workload.name])
        stalled = sum(one["stall"] for one in mine["modules"])
        assert stalled + workload.total == pytest.approx(mine["time"])
        assert all(bool(one["reason"]) == bool(one["stall"]) for one in mine["modules"])
    kept = sum(one["kept"] for one in found["modules"])
    shared = sum(found["slots"]["sizes"]) - sum(
        one["size"] for one in found["modules"] if one["whole"]
    )
    partly = sum(one["kept"] for one in found["modules"] if not one["whole"])
    assert (
        plan.memory
        == model.resident
        + sum(one["size"] for one in found["modules"] if one["whole"])
        + partly
        + shared
    )
    assert kept <= plan.memory
    assert found["moved"] == sum(
        one["copies"] * (one["size"] - one["kept"]) for one in found["modules"]
    )


@pytest.mark.parametrize("captured", [False, True])
def test_what_is_explained_is_the_plans(captured: bool) -> None:
    planner = Planner(costs(), captured=captured)
    for budget in (450 * MB, 600 * MB, 850 * MB, 940 * MB):
        plan = planner.plan(budget)
        found = explained(plan)
        assert found.copies * plan.schedule.period == plan.schedule.copies
        assert set(found.copied) | set(found.whole) == set(range(4))
        assert not set(found.copied) & set(found.whole)
        slots = sum(size * count for size, count in found.slots.items())
        kept = sum(map(found.kept_of, range(4)))
        assert plan.memory == plan.costs.resident + slots + kept
        assert moved(plan) == sum(
            number * (plan.costs.sizes[one] - found.kept_of(one))
            for one, number in copies(plan).items()
        )
        for parts, modules in found.in_part.items():
            for module in modules:
                sizes = {part.name: part.size for part in plan.costs.modules[module].parts}
                assert found.kept_of(module) == sum(sizes[name] for name in parts) > 0


def test_a_period_of_several_passes_is_explained() -> None:
    """Three modules in two slots, each copy as long as half a run: only turns hide them all."""
    plan = Planner(costs((100,) * 3, (20,) * 3, (20,) * 3), parts=False).plan(250 * MB)
    found = explained(plan)
    assert plan.schedule.period == 2
    assert found.copied == {0: 1, 1: 1, 2: 1}
    assert found.slots == {100 * MB: 2}
    assert found.slot_map == "rotating, the same again after 2 passes"
    assert moved(plan) == 300 * MB


def test_what_is_kept_whole_is_not_kept_in_part() -> None:
    plan = Planner(costs()).plan(850 * MB)
    found = explained(replace(plan, kept=(("mlp",),) * 4))
    assert found.whole
    assert sorted(found.in_part[("mlp",)]) == sorted(set(range(4)) - set(found.whole))


def test_of_many_modules_that_wait_the_longest_are_shown() -> None:
    plan = Planner(costs(tuple(range(100, 120)), (1,) * 20, (1,) * 20)).plan(169 * MB)
    found = explained(plan)
    waiting = tuple(
        Stall(one, Fraction(1), 7, Fraction(1), Fraction((one * 7 % 20 + 1) * MB), f"why {one}")
        for one in range(20)
    )
    text = plan_text(replace(found, stalls={"decode": waiting}))
    _, rows = text.split("decode waits for")
    names = [line.split()[0] for line in rows.splitlines()[1:]]
    longest = [f"layers.{one.module}" for one in waiting if one.time > 8 * MB]
    assert names == [*longest, "and"]
    assert rows.splitlines()[-1].split() == ["and", "8", "more", "36.00", "ms", "in", "all"]
    same = tuple(replace(one, time=Fraction(MB), reason="same") for one in waiting)
    _, rows = plan_text(replace(found, stalls={"decode": same})).split("decode waits for")
    assert [line.split("  ")[0] for line in rows.splitlines()[1:]] == ["layers.0 to layers.19"]


def test_everything_fits(call: Call) -> None:
    code, out, _ = call("--memory", "2GB")
    assert code == 0
    assert "The whole model fits: everything is resident, and nothing is copied." in out
    assert "used 906.0 MiB, unused 1,001.4 MiB" in out
    assert "waits for" not in out


def test_the_front(call: Call) -> None:
    code, out, err = call("--points", "4")
    assert (code, err) == (0, "")
    head, _, *rows = out.splitlines()
    assert head == "small on a test: planned for decode 64 : prefill 1, eager passes"
    assert re.split("  +", rows[0].strip()) == [
        "memory", "decode", "prefill", "mix", "lower bound", "gap", "moved a pass",
    ]  # fmt: skip
    assert rows[1].split()[:2] == ["429.2", "MiB"]
    assert rows[-1].split()[:2] == ["906.0", "MiB"]
    assert rows[-1].endswith("0 bytes")
    found = json.loads(call("--points", "4", "--json")[1])
    assert len(found["front"]) == len(rows) - 1
    assert [one["memory"] for one in found["front"]] == sorted(
        one["memory"] for one in found["front"]
    )
    assert found["slot_local"][-1]["memory"] == 950 * MB


def test_one_workload_has_no_mix(call: Call) -> None:
    alone = replace(costs(), workloads=costs().workloads[:1])
    Path("one.json").write_text(costsfile.text(alone), encoding="ascii")
    _, out, _ = call("--memory", ROOMY, file="one.json")
    assert out.splitlines()[0] == "small on a test: planned for decode, eager passes"
    assert "mix" not in out
    assert "mix" not in call("--points", "3", file="one.json")[1]


# ---- what it is planned for


def test_a_mix_replaces_the_weights(call: Call) -> None:
    model = mixed_as(costs(), "prefill = 3 ,decode=0.5")
    assert [one.weight for one in model.workloads] == [0.5, 3]
    assert [one.weight for one in mixed_as(costs(), "prefill=1").workloads] == [0, 1]
    _, out, _ = call("--memory", ROOMY, "--mix", "prefill=1")
    assert out.startswith("small on a test: planned for prefill, eager passes")
    found = json.loads(call("--memory", ROOMY, "--mix", "prefill=1", "--json")[1])
    assert found["time"] == found["workloads"]["prefill"]["time"]
    assert found["workloads"]["decode"]["weight"] == 0


@pytest.mark.parametrize(
    ("mix", "said"),
    [
        ("train=1", "mix: no workload is called 'train'; there are decode, prefill"),
        ("decode=much", "mix: 'much' is no weight of decode; give a number"),
        ("decode", "mix: 'decode' is no list of different NAME=WEIGHT"),
        ("decode=1,decode=2", "is no list of different NAME=WEIGHT"),
        ("", "mix: '' is no list of different NAME=WEIGHT"),
        ("decode=-1", "workloads[0].weight: -1.0 is no number from 0 on"),
        ("decode=nan", "workloads[0].weight: nan is no number from 0 on"),
        ("decode=inf", "workloads[0].weight: inf is no number from 0 on"),
        ("decode=0", "workloads: every weight is 0; give at least one that counts"),
    ],
)
def test_no_mix(call: Call, mix: str, said: str) -> None:
    code, out, err = call("--memory", ROOMY, "--mix", mix)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err


def test_no_module_is_kept_in_part_if_whole_is_asked_for(call: Call) -> None:
    parts = json.loads(call("--memory", "700MB", "--json")[1])
    whole = json.loads(call("--memory", "700MB", "--json", "--whole")[1])
    assert any(one["kept"] and not one["whole"] for one in parts["modules"])
    assert not any(one["kept"] and not one["whole"] for one in whole["modules"])
    assert parts["time"] < whole["time"]
    assert "kept in part" in call("--memory", "700MB")[1]


def test_knobs_that_do_not_fit_are_said(call: Call) -> None:
    code, out, _ = call("--memory", "700MB", "--knobs", "4,1,1", "--knobs", "1,1,1")
    assert code == 0
    assert "vLLM, group size 4, 1 in group, prefetch step 1, which does not fit" in out
    assert re.search(r"\nvLLM, group size 1, 1 in group, prefetch step 1  +\d", out)


# ---- files


def test_files_are_written_and_named(call: Call) -> None:
    plain = call("--memory", ROOMY)
    found = call(
        "--memory", ROOMY, "--points", "3", "--plot", "a.svg", "--certificate", "a.json"
    )  # fmt: skip
    assert found == (0, plain[1], "wrote a.svg\nwrote a.json\n")
    assert ElementTree.parse("a.svg").getroot().tag.endswith("svg")
    recheck(json.loads(Path("a.json").read_text(encoding="ascii")))
    plan = Planner(costs()).plan(850 * MB)
    assert Path("a.json").read_text(encoding="ascii") == plan.verified.certificate()


def test_standard_output_gets_the_picture_alone(call: Call) -> None:
    code, out, err = call("--points", "3", "--plot", "-")
    assert (code, err) == (0, "")
    assert ElementTree.fromstring(out).tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plot", "a", "--certificate", "a"], "--plot and --certificate both go to 'a'"),
        (["--plot", "./a", "--certificate", "a"], "--plot and --certificate both go to './a'"),
        (["--plot", "./costs.json"], "--costs and --plot both go to"),
        (["--certificate", "costs.json"], "--costs and --certificate both go to"),
        (["--plot", "-", "--json"], "--plot and --json both go to standard output"),
        (["--certificate", "-", "--json"], "--certificate and --json both go to standard output"),
        (["--plot", "."], "can't write '.': Is a directory"),
        (["--plot", "no/such"], "can't write 'no/such': No such file"),
        (["--certificate", "."], "can't write '.': Is a directory"),
        (["--points", "1"], "--points 1: give a number from 2 to 500"),
        (["--points", "501"], "--points 501: give a number from 2 to 500"),
        (["--knobs", "4,2"], "knobs: '4,2' is no group size, number in group and step"),
        (["--knobs", "4,x,1"], "knobs: '4,x,1' is no group size"),
        (["--knobs", "2,3,1"], "number in group: 3, but a group has 2 layers"),
        (["--knobs", "0,0,1"], "group size: 0"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_printed(
    call: Call, tmp_path: Path, arguments: list[str], said: str
) -> None:
    code, out, err = call(
        "--memory", ROOMY, *(arguments or ()), *["--points", "2"] * ("--points" not in arguments)
    )
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert said in err
    assert [one.name for one in tmp_path.iterdir()] == ["costs.json"]


def test_what_is_of_one_plan_needs_a_budget(call: Call) -> None:
    for arguments in (["--certificate", "a"], ["--knobs", "2,1,1"]):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert "give --memory too" in err


# ---- budgets and costs that are none


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (
            "449MB",
            "memory: 449000000 bytes are too few: 50000000 bytes stay on the device, and layers.0 "
            "needs a slot of 400000000; the smallest that works is 450000000",
        ),
        ("0", "the smallest that works is 450000000"),
        ("much", "memory='much' is no size"),
        ("9" * 400, "is no whole number of bytes from 0 to 10**18"),
        ("9" * 5000, "is no size"),
        ("6 gigs", "memory='6 gigs' has the unknown unit 'gigs'"),
        ("-6GiB", "memory='-6GiB' is no size"),
        ("nan", "memory='nan' is no size"),
    ],
)
def test_a_budget_that_is_none_or_too_small(call: Call, memory: str, said: str) -> None:
    code, out, err = call(f"--memory={memory}")
    assert (code, out) == (2, "")
    assert said in err


def test_the_smallest_budget_that_works_works(call: Call) -> None:
    assert call("--memory", "450000000")[0] == 0
    assert call("--memory", "449999999")[0] == 2


def changed(path: str, value: Any) -> str:
    data = costsfile.document(costs())
    *way, last = path.split(".")
    place: Any = data
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    if value is ...:
        del place[last]
    else:
        place[int(last) if last.isdigit() else last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("workloads.0.compute.1", -1, "workloads[0].compute[1]"),
        ("workloads.0.compute.1", float("nan"), "workloads[0].compute[1]"),
        ("workloads.1.between", [0], "workloads[1].between: 1 times, where 4 modules need 5"),
        ("workloads.0.compute", ..., "workloads[0].compute: missing"),
        ("link.bandwidth", 0, "link.bandwidth: 0 is no whole number from 1"),
        ("link.latency", ..., "link.latency: missing"),
        ("modules.2.parts.mlp", float("inf"), "modules[2].parts.mlp"),
        ("modules.2.name", "layers.0", "modules: two are called 'layers.0'"),
        ("resident", "much", "resident: a number from 0 on is needed"),
        ("modules", [], "modules: none"),
        ("costs", 7, "costs: 7, where 1 is known"),
        ("colour", "red", "colour: unknown field"),
    ],
)
def test_costs_that_make_no_sense(call: Call, path: str, value: Any, said: str) -> None:
    Path("bad.json").write_text(changed(path, value), encoding="ascii")
    code, out, err = call("--memory", ROOMY, file="bad.json")
    assert (code, out) == (2, "")
    assert err.startswith("error: bad.json: ")
    assert said in err


def test_what_is_nested_deeply_is_refused(tmp_path: Path) -> None:
    """At some depth it can be read, but not be written again."""
    path = tmp_path / "deep.json"
    for depth in range(500, 1100):
        path.write_text(f'{{"costs": {"[" * depth}{"]" * depth}}}', encoding="ascii")
        with pytest.raises(CostsError):
            costsfile.read(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.json", "none.json can't be read: No such file"),
        (".", ". can't be read: Is a directory"),
        ("text.json", "text.json is no JSON"),
    ],
)
def test_costs_that_can_not_be_read(call: Call, name: str, said: str) -> None:
    Path("text.json").write_text("costs\n", encoding="ascii")
    code, out, err = call(file=name)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    "model",
    [
        costs((100,), (1,), (1,)),
        costs((100, 1), (0, 0), (0, 0)),
        costs(streams=0),
        costs(streams=2),
        replace(costs(), link=Link(1)),
        replace(costs(), model="", device="", resident=0),
    ],
    ids=["one module", "no compute", "shared", "two streams", "slow", "nameless"],
)
def test_unusual_models(call: Call, model: Costs) -> None:
    Path("odd.json").write_text(costsfile.text(model), encoding="ascii")
    for arguments in (["--memory", "500MB"], []):
        code, out, err = call(*arguments, "--points", "3", "--plot", "odd.svg", file="odd.json")
        assert (code, err) == (0, "wrote odd.svg\n")
        assert "planned for" in out
        assert ElementTree.parse("odd.svg").getroot().tag.endswith("svg")
