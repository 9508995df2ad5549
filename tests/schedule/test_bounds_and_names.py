"""Bounds on what is read and drawn, and names that could be taken for something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schedule import Policy, Ring, policies
from schedule.__main__ import main
from schedule.arithmetic import cyclic_slot
from schedule.audit import audit
from schedule.conform import conform
from schedule.errors import PolicyError, ProgramError
from schedule.operations import (
    COMPUTE,
    COPY,
    Capture,
    Copy,
    Event,
    Issued,
    Operation,
    Record,
    Streams,
)
from schedule.order import order
from schedule.program import WRITE, lower
from schedule.table import Boundary
from schedule.trace import Trace
from schedule.tracefile import parse, read


@pytest.mark.parametrize("name", ["copy: replay 0 of g", "before, into slot 0", ""])
def test_a_stream_is_not_called_like_one_of_a_replay_or_of_before(name: str) -> None:
    with pytest.raises(ProgramError, match="must be a tuple of names without ',:'"):
        Streams((COPY, name))


@pytest.mark.parametrize("copies", [5, ["copy"], "copy", (1,)])
def test_streams_of_another_type_are_refused(copies: object) -> None:
    with pytest.raises(ProgramError, match="must be a tuple of names"):
        Streams(copies)  # type: ignore[arg-type]


ODD: list[tuple[object, str]] = [
    (Capture(COMPUTE, None), "graph: None is no name"),  # type: ignore[arg-type]
    (Capture(COMPUTE, 5), "graph: 5 is no name"),  # type: ignore[arg-type]
    (Record(COPY, Event("landed", [1])), "is no Event"),  # type: ignore[arg-type]
    (Record(COPY, Event("ran", None, [1])), "is no Event"),  # type: ignore[arg-type]
    (Record(COPY, Event([1])), "is no Event"),  # type: ignore[arg-type]
    (Copy(COPY, 0, 0, "no"), "pageable: 'no' is no bool"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("operation", "why"), ODD)
def test_an_operation_of_odd_parts_is_refused(operation: Operation, why: str) -> None:
    with pytest.raises(ProgramError, match=f"^operation 0 .*{why}"):
        order((Issued(operation, Boundary("step", 0)),))


def test_a_boundary_is_a_text_and_a_step() -> None:
    odd = Boundary([], 0)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match=r"boundary.half: \[\] is no text"):
        order((Issued(Copy(COPY, 0, 0), odd),))


@pytest.mark.parametrize("listing", [5, None])
def test_what_is_no_listing(listing: object) -> None:
    with pytest.raises(ProgramError, match="is no listing"):
        order(listing)  # type: ignore[arg-type]


def test_very_many_passes_are_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--modules", "3", "--slots", "2", "--policy", "chain"]
    assert main(["show", *sizes, "--passes", "1000000000"]) == 2
    assert "are more than 20,000 runs; show fewer" in capsys.readouterr().err


def test_very_many_places_are_not_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--modules", "2000", "--slots", "1000", "--policy", "chain"]) == 2
    assert "more than 1,000,000 places in a picture" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "a\nfits", None, 7, "x\ud800"])
def test_a_policys_name_can_be_printed(name: Any) -> None:
    with pytest.raises(PolicyError, match="of a policy must be a text that can be printed"):
        Policy(name, cyclic_slot)


def test_a_file_that_never_ends_is_not_read() -> None:
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("no endless file here")
    with pytest.raises(ProgramError, match="has more than 268,435,456 bytes"):
        read(endless)


CHAIN = policies.chain(Ring(3, 2))


def trace(*, device: str = "cpu") -> Trace:
    """Two passes, the preload before them."""
    found = Trace(device, CHAIN, (-1, -1))
    parts = lower(CHAIN).parts()
    found.issued = list(parts["preload"][0])
    for _ in range(2):
        for step in range(3):
            for half in ("run", "after"):
                found.issued += parts[half][step]
    return found


@pytest.mark.parametrize("device", ["x\nfits", "\x1b[2J"])
def test_a_header_does_not_print_verdicts(device: str) -> None:
    content = "".join(f"{line}\n" for line in trace(device=device).lines()).encode()
    with pytest.raises(ProgramError, match=r"^line 1: device: .* can't be printed$"):
        parse(content)


def test_a_write_of_what_is_not_in_the_slot_any_more_does_not_fit() -> None:
    """What is kept is read from the slot; module 0's slot holds module 2 after it."""
    whole = trace()
    assert audit(whole).fits
    write = lower(CHAIN).parts()[WRITE][0]
    at = max(n for n, one in enumerate(whole.issued) if one.boundary == Boundary("run", 1))
    whole.issued[at + 1 : at + 1] = write
    misfit, _, _ = conform(whole)
    assert misfit is not None
    assert misfit.why in ("module 0 lost its slot before", "module 0 is not running")
