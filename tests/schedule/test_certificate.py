"""Certificates: true ones of everything that is verified, and none for anything else."""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from schedule import CertificateError, Ring, Schedule, Verified, check, policies, verify
from schedule import recheck as checker
from schedule.__main__ import main
from schedule.certificate import document, read
from schedule.recheck import Refuted, digest, recheck
from tests.schedule.test_random_tables import FIXED, schedules, small_tables

TABLES = ("preload", "enter", "before", "after", "leave")
SOUND = verify(policies.balanced(Ring(5, 2)))


def unchecked(schedule: Schedule) -> dict[str, Any] | None:
    """A certificate of a schedule that nobody verified; None if a run reads an empty slot, and
    nothing brought anything there."""
    try:
        return document(Verified(schedule, ()))
    except KeyError:
        return None


def refused(data: Any) -> str:
    with pytest.raises(Refuted) as caught:
        recheck(data)
    return str(caught.value)


def rehashed(data: dict[str, Any]) -> dict[str, Any]:
    return data | {"sha256": digest(data)}


@pytest.mark.parametrize("name", policies.NAMED)
def test_what_is_verified_has_a_true_certificate_and_gets_its_schedule_back(name: str) -> None:
    policy, unsafe = policies.NAMED[name], 0
    for modules in range(1, 8):
        for slots in range(policy.least_slots, 8):
            schedule = policy(Ring(modules, slots))
            if check(schedule).safe:
                text = verify(schedule).certificate()
                recheck(json.loads(text))
                assert read(json.loads(text)) == schedule
                continue
            unsafe += 1
            data = unchecked(schedule)
            assert data is not None
            assert ": slot " in refused(data)
    assert (unsafe > 0) == (name == "modular")


def agrees(schedule: Schedule) -> bool:
    """The checker believes the schedule's certificate if and only if it is safe."""
    data = unchecked(schedule)
    try:
        recheck(data)
        believed = True
    except Refuted:
        believed = False
    return believed == check(schedule).safe


@FIXED
@given(schedule=schedules())
def test_random_tables_are_believed_if_and_only_if_they_are_safe(schedule: Schedule) -> None:
    assert agrees(schedule)


def test_all_small_tables_are_believed_if_and_only_if_they_are_safe() -> None:
    safe = 0
    for schedule in small_tables():
        assert agrees(schedule), schedule
        safe += check(schedule).safe
    assert safe > 20


def integers_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, int):
        return [path]
    inside = enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in inside for found in integers_in(one, (*path, key))]


def test_each_number_changed_is_refused_or_is_another_true_certificate() -> None:
    """With the hash computed anew, so that it is no help."""
    refuted = 0
    for name in ("modules", "slots", "slot_of", *TABLES, "brought"):
        for path in integers_in(document(SOUND)[name]):
            for change in (-1, 1):
                data: Any = copy.deepcopy(document(SOUND))
                place, key = data, name
                for deeper in path:
                    place, key = place[key], deeper
                place[key] += change
                data = rehashed(data)
                try:
                    recheck(data)
                except Refuted:
                    refuted += 1
                else:  # a spare slot more, say
                    assert check(read(data)).safe
    assert refuted > 50


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another slot": (
        {"slot_of": [1, 1, 0, 1, 0]},
        "period 0, run 0: slot 1 holds module 0",
    ),
    "no preload": ({"preload": []}, "period 0, run 0: slot 0 holds module 0"),
    "a module replaced too soon": (
        {"after": [[[0, 2]], [[1, 3]], [[0, 4]], [[1, 1], [0, 0]], [[0, 0]]]},
        "period 0, after 3: slot 0's next run is not module 4's",
    ),
    "a refill left out": (
        {"after": [[[0, 2]], [[1, 3]], [[0, 4]], [[1, 1]], []]},
        "period 1, run 0: slot 0 holds module 0",
    ),
    "brought elsewhere": (
        {"brought": [["after", 4], ["after", 3], ["after", 0], ["after", 2], ["after", 2]]},
        "period 1, run 3: it was brought at ['after', 2]",
    ),
    "a name that is none": ({"policy": 3}, "names can be printed"),
    "a name that moves the cursor": ({"policy": "a\x1b[2J"}, "names can be printed"),
    "half a sign": ({"ringproof": "\ud800"}, "names can be printed"),
    "a claim less": ({"claims": ["ownership"]}, f"claims is {checker.CLAIMS}"),
    "another schema": ({"certificate": 2}, "certificate is 1"),
    "a schema that is true": ({"certificate": True}, "certificate is 1"),
    "no modules": ({"modules": 0}, "modules and slots are at least 1"),
    "a float": ({"slots": 2.0}, "modules and slots has integers from 0 to 1000000"),
    "a slot outside": ({"slot_of": [0, 1, 0, 1, 2]}, "slot_of has integers from 0 to 1"),
    "half a pass": ({"slot_of": [0, 1]}, "slot_of has a multiple of 5 steps"),
    "a table too short": ({"before": [[]]}, "before has 5 entries"),
    "a pair of three": ({"preload": [[0, 0, 0]]}, "preload has pairs of a slot and a module"),
    "no list": ({"enter": 7}, "enter is a list"),
    "brought by a number that only equals": (
        {"brought": [["after", 4.0], ["after", 3], ["after", 0], ["after", 1], ["after", 2]]},
        "brought has pairs of a half and a step",
    ),
    "brought too short": ({"brought": []}, "brought has 5 entries"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_first_statement_that_fails_is_named(what: str) -> None:
    changes, statement = REFUSED[what]
    assert refused(rehashed(document(SOUND) | changes)) == statement


def test_a_change_that_is_not_hashed_anew_shows() -> None:
    """Here the change is no lie: another name of the policy."""
    data = document(SOUND) | {"policy": "mine"}
    assert refused(data) == f"sha256 is {digest(data)}"
    recheck(rehashed(data))


@pytest.mark.parametrize("data", [None, [], {}, "text", {"certificate": 1}])
def test_what_is_no_certificate_is_refused_by_its_fields(data: Any) -> None:
    assert refused(data).startswith("its fields are ('certificate', 'ringproof', ")


def test_another_field_is_refused() -> None:
    assert refused(rehashed(document(SOUND) | {"more": 1})).startswith("its fields are ")


def test_the_checker_is_short_and_uses_nothing_of_ours() -> None:
    source = Path(checker.__file__).read_text(encoding="ascii")
    tree = ast.parse(source)
    code = ast.unparse(tree).splitlines()  # without comments
    docs = [ast.get_docstring(node) or "" for node in [tree, *tree.body] if hasattr(node, "body")]
    assert len(code) - sum(len(doc.splitlines()) for doc in docs) <= 100
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {getattr(node, "module", None) or node.names[0].name for node in imports}
    assert names == {"__future__", "hashlib", "json", "collections.abc", "typing"}


# ---- the command


def written(folder: Path, policy: str = "balanced") -> tuple[int, Path]:
    place = folder / "found.json"
    sizes = ["--modules", "5", "--slots", "2", "--policy", policy]
    return main(["check", *sizes, "--certificate", str(place)]), place


def test_check_writes_it_and_recheck_believes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, place = written(tmp_path)
    assert code == 0
    assert place.read_text() == SOUND.certificate()
    capsys.readouterr()
    assert main(["recheck", str(place)]) == 0
    assert capsys.readouterr().out == (
        "balanced, 5 modules, 2 slots: TRUE\n"
        "ownership, progress, identity, closure hold, for ever after the preload\n"
    )
    assert main(["recheck", str(place), "--slots", "3"]) == 2
    assert capsys.readouterr().err == "error: slots: 2, but 3 is asked for\n"
    assert main(["recheck", str(place), "--modules", "5", "--slots", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"true": True, "refuted": None}


def test_recheck_refutes_a_tampered_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, place = written(tmp_path)
    changes, statement = REFUSED["a refill left out"]
    place.write_text(json.dumps(rehashed(json.loads(place.read_text()) | changes)))
    capsys.readouterr()
    assert main(["recheck", str(place)]) == 1
    assert capsys.readouterr().out == f"REFUTED: not true is: {statement}\n"
    with pytest.raises(CertificateError, match="the certificate is refused; not true is: period 1"):
        read(place)


def test_an_unsafe_schedule_gets_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, place = written(tmp_path, "modular")
    assert code == 1
    assert not place.exists()
    assert capsys.readouterr().err == "no certificate is written: the schedule is not safe\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no certificate: Expecting value"),
        (b"\xff", "is no certificate: 'ascii' codec"),
        (b"[" * 100_000, "is no certificate: maximum recursion depth"),
        (b'{"slots": 2, "slots": 3}', "slots: is there twice; the file is no certificate"),
        (None, "can't be read: No such file"),
    ],
)
def test_what_can_not_be_read_is_bad_input(
    content: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / "it").write_bytes(content)
    assert main(["recheck", str(tmp_path / "it")]) == 2
    assert said in capsys.readouterr().err
