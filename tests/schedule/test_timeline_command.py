"""``show``: its lanes and fences as text, and the files that it writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from schedule import Ring, check, policies
from schedule.__main__ import main
from schedule.drawing import draw
from schedule.perfetto import trace
from schedule.picture import picture
from schedule.policy import NAMED
from schedule.timeline import LEGEND, WIDTH, show
from tests.schedule.test_timeline_placed import drawings

OLD = ["show", "--modules", "3", "--slots", "2", "--policy", "modular"]
NEW = ["show", "--modules", "3", "--slots", "2", "--policy", "balanced"]


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


# ---- text


def lane(text: str, name: str) -> list[str]:
    """A lane's cells, over all blocks."""
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return [cell for line in lines for cell in line.removeprefix(name).split()]


def test_fences_are_a_lane_between_the_streams() -> None:
    text = show(draw(check(policies.modular(Ring(3, 2))), 1))
    names = [line.split()[0] for line in text.splitlines() if line[:1].isalpha()]
    assert names[1:6] == ["compute", "fence", "copy", "slot", "slot"]
    assert lane(text, "fence") == ["^0", "v0", "^1", "v1", "^0", "v2"]
    assert text.splitlines()[0] == "modular, 3 modules, 2 slots: VIOLATED"
    assert text.endswith(LEGEND)


def test_the_fence_lane_has_exactly_the_drawings_fences() -> None:
    for drawing in drawings():
        text = show(drawing)
        wanted = []
        for earlier, later in sorted(drawing.placed.fences, key=lambda fence: fence.later):
            arrow = "^" if drawing.moments[later].half == "run" else "v"
            wanted.append(f"{arrow}{drawing.moments[earlier].module}")
        assert lane(text, "fence") == wanted
        assert max(map(len, text.splitlines())) <= WIDTH


def test_every_mark_is_an_exclamation_mark() -> None:
    for drawing in drawings(3):
        assert show(drawing).replace(LEGEND, "").count("!") == len(drawing.marks)


def test_a_fence_stands_in_the_column_of_what_waits() -> None:
    lines = show(draw(check(policies.modular(Ring(3, 2))), 1)).splitlines()
    head, compute, fence, copy = lines[2:6]
    assert fence.index("^1") - compute.index("1") in (-1, 0)
    assert fence.index("v0") - copy.index("2") in (-1, 0)
    assert head.index("run 1") <= fence.index("^1") <= head.index("run 1") + len("run 1")


# ---- files


@pytest.mark.parametrize(("arguments", "code"), [(OLD, 1), (NEW, 0)])
def test_files_are_written_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], code: int
) -> None:
    svg, json_ = tmp_path / "ring.svg", tmp_path / "ring.json"
    plain = call(capsys, *arguments)
    found = call(capsys, *arguments, "--svg", str(svg), "--trace", str(json_))
    assert found == (code, plain[1], f"wrote {svg}\nwrote {json_}\n")
    drawing = draw(check(NAMED[arguments[-1]](Ring(3, 2))), 1)
    assert svg.read_bytes() == picture(drawing).encode()
    assert json_.read_bytes() == trace(drawing).encode()


def test_passes_are_honoured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "ring.json"
    assert call(capsys, *NEW, "--passes", "4", "--trace", str(file))[0] == 0
    events = json.loads(file.read_text())["traceEvents"]
    assert [e["args"]["pass"] for e in events if e["name"] == "ringproof pass"] == [0, 1, 2, 3]


def test_standard_output_gets_the_document_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *OLD, "--svg", "-")
    assert (code, err) == (1, "")
    assert ElementTree.fromstring(out).tag.endswith("svg")
    code, out, err = call(capsys, *NEW, "--trace", "-")
    assert (code, err) == (0, "")
    assert json.loads(out)["traceEvents"]


def test_json_and_a_file_go_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "ring.svg"
    code, out, err = call(capsys, *OLD, "--json", "--svg", str(file))
    assert (code, err) == (1, f"wrote {file}\n")
    assert json.loads(out)["verdict"] == "VIOLATED"
    assert file.exists()


@pytest.mark.parametrize("policy", list(NAMED))
def test_every_named_policy_is_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: str
) -> None:
    sizes = ["--modules", "5", "--slots", "2"]
    files = [tmp_path / "ring.svg", tmp_path / "ring.json"]
    arguments = ["show", *sizes, "--policy", policy, "--svg", str(files[0])]
    code, _, _ = call(capsys, *arguments, "--trace", str(files[1]))
    assert code == (policy == "modular")
    assert ElementTree.parse(files[0]).getroot().tag.endswith("svg")
    assert json.loads(files[1].read_text())["traceEvents"]


def test_a_users_policy_is_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drawn_rules.py").write_text(
        "def never(index, slots, modules):\n    return None\n", encoding="ascii"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["show", "--modules", "3", "--slots", "2", "--policy", "drawn_rules:never"]
    code, out, _ = call(capsys, *arguments, "--svg", "-")
    assert code == 1
    root = ElementTree.fromstring(out)
    marks = [one for one in root.iter() if (one.get("class") or "").startswith("mark ")]
    assert [one.get("class") for one in marks] == ["mark identity"]
    sys.modules.pop("drawn_rules", None)


@pytest.mark.parametrize("option", ["--svg", "--trace"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no/such/file", "No such file"),
        (".", "Is a directory"),
        ("", "directory"),
        ("a\0b", "null"),
    ],
)
def test_a_bad_path_is_said_and_nothing_is_printed(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    name: str,
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *OLD, option, name)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: can't write {name!r}: ")
    assert why in err
    assert list(tmp_path.iterdir()) == []


def test_a_bad_path_beside_standard_output_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = call(capsys, *OLD, "--svg", "-", "--trace", "no/such/file")
    assert (code, out) == (2, "")
    assert "no/such/file" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--svg", "-", "--trace", "-"], "--svg and --trace both go to standard output"),
        (["--svg", "-", "--json"], "--svg and --json both go to standard output"),
        (["--trace", "-", "--json"], "--trace and --json both go to standard output"),
        (["--svg", "a", "--trace", "a"], "--svg and --trace both go to 'a'"),
    ],
)
def test_two_documents_at_one_place_are_refused(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *NEW, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []
