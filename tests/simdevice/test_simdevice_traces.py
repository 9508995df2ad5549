"""Traces of runs on the simulated accelerator fit, whatever the timing was; changed ones do not,
and the line at fault is named. (Every small change is tried on traces of a CPU.)"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from proofs.mutants_program import PROGRAM_MUTANTS
from proofs.mutation import apply
from proofs.obligation import System
from runtime.unverified import offload_without_proof
from schedule.audit import Audited, audit
from schedule.errors import ProgramError
from schedule.trace import Trace, line_of
from schedule.tracefile import parse, read
from tests.runtime.tamper import Lines, lines_of, whole
from tests.simdevice.device import ADVERSARIES, SimDevice
from tests.simdevice.helpers import DEVICE, OTHER
from tests.simdevice.offloads import IN_ORDER, ONE, SAFE, Case

TWO = "two copy streams"


def traced(sim: SimDevice, case: Case, seed: int, adversary: str) -> Trace:
    """A round's trace under a seed."""
    with case.offloaded.trace() as trace:
        assert case.right(sim, seed, adversary)
    return trace


def by_file(trace: Trace, folder: Path) -> Audited:
    """Saved, read again, and audited."""
    trace.save(folder / "trace")
    found = read(folder / "trace")
    assert found == trace
    return audit(found)


@pytest.mark.parametrize("policy", SAFE)
@pytest.mark.parametrize("kind", [IN_ORDER, "skipped", "writing"])
def test_a_trace_fits_under_every_seed(
    sim: SimDevice, tmp_path: Path, policy: str, kind: str
) -> None:
    """The same trace each time: timing is the device's, and the trace is the host's."""
    for streams in (ONE, TWO, "copies on the compute stream"):
        case, traces = Case(policy, 5, 2, kind, streams), []
        with case.offloaded as offloaded:
            for adversary in ADVERSARIES:
                before = offloaded.report()
                traces.append(traced(sim, case, 3, adversary))
                after = offloaded.report()
                audited = by_file(traces[-1], tmp_path)
                assert audited.fits, str(audited)
                assert audited.trace.device == DEVICE
                assert audited.copies == after.copies - before.copies
                assert audited.runs == after.runs - before.runs
                assert audited.misses == after.misses - before.misses
        assert traces[0] == traces[1] == traces[2] or kind == "writing"


def test_the_header_names_the_device(sim: SimDevice) -> None:
    for device in (DEVICE, OTHER):
        case = Case("chain", 3, 2, device=device)
        with case.offloaded:
            trace = traced(sim, case, 1, "random")
        assert json.loads(next(trace.lines()))["device"] == device
        assert audit(trace).fits


# ---- tampered


@pytest.fixture
def trace(sim: SimDevice) -> Trace:
    """Of a run with reloads and kept writes, which has every kind of fence."""
    case = Case("double_buffer", 4, 3, "writing")
    with case.offloaded:
        return traced(sim, case, 2, "copies")


def refused_at(lines: Lines) -> int:
    """The line that the reader or the audit names first; 0 if the trace fits."""
    content = "".join(f"{json.dumps(line)}\n" for line in lines)
    try:
        audited = audit(parse(content.encode()))
    except ProgramError as error:
        return int(str(error).removeprefix("line ").partition(":")[0])
    return 0 if audited.fits else line_of(audited.misfits[0].at)


def places(trace: Trace, *kinds: str) -> list[int]:
    """The lines of these operations."""
    numbered = enumerate(lines_of(trace), start=1)
    found = [number for number, one in numbered if one.get("op") in kinds]
    assert len(found) > 3
    return found


def changed(trace: Trace, line: int, **fields: Any) -> Lines:
    lines = lines_of(trace)
    lines[line - 1] = lines[line - 1] | fields
    return lines


def edited(trace: Trace, first: int, last: int, put: Lines) -> Lines:
    """With these lines in place of others, and the end's number mended."""
    header, *body, _ = lines_of(trace)
    return whole(header, [*body[: first - 2], *put, *body[last - 1 :]])


def test_it_fits_as_it_is(trace: Trace) -> None:
    audited = audit(trace)
    assert audited.fits
    assert audited.misses > 0
    assert {"write", "record", "wait", "copy", "run"} == {
        line["op"] for line in lines_of(trace) if "op" in line
    }
    assert refused_at(lines_of(trace)) == 0


def test_without_a_fence(trace: Trace) -> None:
    for line in places(trace, "record", "wait"):
        assert refused_at(edited(trace, line, line, [])) == line


def test_with_a_copy_twice(trace: Trace) -> None:
    lines = lines_of(trace)
    for line in places(trace, "copy"):
        twice = edited(trace, line, line, 2 * [lines[line - 1]])
        assert refused_at(twice) == line + 1


def test_with_neighbours_swapped(trace: Trace) -> None:
    lines = lines_of(trace)
    for line in places(trace, "record", "wait", "copy"):
        pair = lines[line - 1 : line + 1]
        assert refused_at(edited(trace, line, line + 1, pair[::-1])) == line


def test_with_another_slot(trace: Trace) -> None:
    for line in places(trace, "copy", "run"):
        slot = lines_of(trace)[line - 1]["slot"]
        assert refused_at(changed(trace, line, slot=(slot + 1) % 3)) == line


def test_with_an_event_of_another_device(trace: Trace) -> None:
    for line in places(trace, "record", "wait"):
        event = lines_of(trace)[line - 1]["event"]
        assert refused_at(changed(trace, line, event={**event, "device": DEVICE})) == 0
        assert refused_at(changed(trace, line, event={**event, "device": OTHER})) == line


def test_cut_off(trace: Trace) -> None:
    lines = lines_of(trace)
    for kept in (1, 2, len(lines) // 2, len(lines) - 1):
        assert refused_at(lines[:kept]) == kept + 1


# ---- of a program with a fault

SHOWS: dict[str, tuple[str, str, int, list[str]]] = {
    "no fork event": (IN_ORDER, ONE, 4, ["program", "WAR"]),
    "stream-wide wait replaced by nothing": (IN_ORDER, ONE, 5, ["program", "WAR"]),
    "no wait for the copy": (IN_ORDER, ONE, 2, ["program", "RAW"]),
    "wait on a stale record": (IN_ORDER, ONE, 6, ["program", "meaning", "RAW"]),
    "two copy streams without order": ("skipped", TWO, 4, ["program", "WAW", "meaning", "RAW"]),
    "a host write during a copy": ("writing", ONE, 5, ["program", "block"]),
}
"""By mutant of the lowering: what runs, on which streams; the first line that does not fit, and by
which properties the trace does not."""

unverified = functools.partial(offload_without_proof, output_may_be_wrong=True, guard=True)


@pytest.mark.parametrize("name", SHOWS)
def test_a_run_that_lacks_a_fence_does_not_fit(sim: SimDevice, name: str, tmp_path: Path) -> None:
    """Whether its output was wrong or not."""
    kind, streams, line, properties = SHOWS[name]
    (mutant,) = (one for one in PROGRAM_MUTANTS if one.name == name)
    faulty = apply(mutant, System()).program.lower
    case = Case("chain", 3, 1, kind, streams, lower=faulty, offload=unverified)
    with case.offloaded as offloaded, offloaded.trace() as trace, sim.steps(0, "random"):
        case.outputs()
    audited = by_file(trace, tmp_path)
    assert not audited.fits
    assert line_of(audited.misfits[0].at) == line
    assert [misfit.property for misfit in audited.misfits] == properties
