"""The plugin for pytest: which policies are collected, what passes, what is said of the rest."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from proofs import enumeration
from tests.proofs.kit import ROOT, python

pytest_plugins = ["pytester"]

RULES = """
from functools import partial
from os.path import join
from schedule import Policy
from schedule.policy import chain
from elsewhere import borrowed, lent, replaced

def fixed(index, slots, modules):
    target = (index + slots) % modules
    if slots < modules and target % slots != index % slots:
        target = index % slots
    return target

def old(index, slots, modules):
    return (index + slots) % modules

def bits(index, slots, modules):
    return fixed(index, slots, modules) & -1

def typed(index, slots, modules):
    return fixed(index, slots, modules) if isinstance(modules, int) else None

def half(index, slots, modules):
    return 0.5

def replaced(index, slots, modules):
    return fixed(index, slots, modules)

def helper(index, slots):
    return index % slots

def _private(index, slots, modules):
    return None

class Rule:
    def __init__(self, index, slots, modules): ...

mine = Policy("mine", lambda step, ring: 0)
again = partial(lambda most, index, slots, modules: None, 3)
__all__ = ["_private", "helper", "lent", "chain"]
"""
ELSEWHERE = """
def borrowed(index, slots, modules): ...
def lent(index, slots, modules): ...
def replaced(index, slots, modules): ...
"""
OWN = "replaced fixed old bits typed half mine again _private lent chain"

Call = Callable[..., pytest.RunResult]


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other people's plugins take longer to import than a policy to refute."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("CI", raising=False)  # there pytest says in its summary all once more


@pytest.fixture
def call(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Call:
    """pytest with the plugin, in a directory that has rules.py and no tests. Few rings are tried,
    to save time."""
    monkeypatch.setattr(enumeration, "LARGE", 14)
    pytester.makepyfile(rules=RULES, elsewhere=ELSEWHERE)

    def run(*arguments: str) -> pytest.RunResult:
        plugins = ("-p", "pytest_ringproof", "-p", "no:cacheprovider")
        return pytester.runpytest_inprocess(*plugins, *arguments)

    return run


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


# ---- what is collected


def test_a_modules_own_policies_and_those_in_all_are_collected(call: Call) -> None:
    result = call("--ring-policies", "rules", "--collect-only", "-q")
    assert collected(result) == [f"rules::{name}" for name in OWN.split()]
    assert result.ret == 0


def test_what_a_module_imports_is_left_out_in_whatever_way(
    call: Call, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        other="""
        import rules
        from rules import fixed as borrowed, mine
        try:
            from nowhere import fast
        except ImportError:
            def fast(index, slots, modules): ...
        def inner():
            from rules import given
        given = rules.mine
        """
    )
    result = call("--ring-policies", "other", "--collect-only", "-q")
    assert collected(result) == ["other::fast", "other::given"]


def test_one_policy_of_a_module_whatever_it_is_called(call: Call) -> None:
    names = ["rules:_private", "rules:fixed", "elsewhere:borrowed", "rules:fixed", "elsewhere"]
    options = [part for name in names for part in ("--ring-policies", name)]
    assert collected(call(*options, "--collect-only", "-q")) == [
        "rules::_private",
        "rules::fixed",
        "elsewhere::borrowed",
        "elsewhere::lent",
        "elsewhere::replaced",
    ]


def test_the_configuration_adds_them_to_the_tests_and_k_chooses(
    call: Call, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nring_policies =\n    rules:mine\n    rules:old\n    rules:bits\n")
    pytester.makepyfile(test_more="def test_one(): pass\ndef test_old(): pass\n")
    result = call("-k", "old or mine", "-v")
    result.assert_outcomes(passed=2, failed=1, deselected=2)
    result.stdout.fnmatch_lines(
        ["*test_more.py::test_old PASSED*", "*rules::mine PASSED*", "*rules::old FAILED*"]
    )
    result.stdout.fnmatch_lines(["FAILED rules::old*"])


def test_who_names_tests_by_id_gets_these_alone_and_what_the_command_line_adds(
    call: Call, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nring_policies = rules:old\n")
    pytester.makepyfile(test_more="def test_one(): pass\n")
    call("test_more.py").assert_outcomes(passed=1, failed=1)
    call("test_more.py::test_one").assert_outcomes(passed=1)
    added = ("--ring-policies", "rules:half")
    result = call("test_more.py::test_one", *added)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED rules::half*"])


def test_the_working_directory_and_the_root_are_searched(
    call: Call, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeini("[pytest]\nring_policies = rules:mine\n")
    inner = pytester.mkdir("inner")
    (inner / "here.py").write_text("from rules import mine as other\nmine = other\n")
    monkeypatch.chdir(inner)
    assert not {str(inner), str(pytester.path)} & set(sys.path)
    result = call("--ring-policies", "here", "--collect-only", "-q")
    assert [Path(line).name for line in collected(result)] == ["rules::mine", "here::mine"]


# ---- verdicts


def test_what_is_proved_passes_and_a_violation_is_told_without_a_traceback(call: Call) -> None:
    result = call("--ring-policies", "rules", "-k", "mine or old", "-v")
    result.assert_outcomes(passed=1, failed=1, deselected=9)
    result.stdout.fnmatch_lines(["rules::old FAILED*", "rules::mine PASSED*"])
    said = result.stdout.str()
    lines = [
        "rules:old, 3 modules, 2 slots: VIOLATED",
        "slot 0      >0      [0]     >2       2      >0!    [0]!      0",
        "ownership  VIOLATED  pass 0, after module 1: refill of module 0 into slot 0 replaces "
        "module 2, which slot 0's next run reads; module 2 then reads module 0's weights",
        "old(index=1, slots=2, modules=3) returned 0, and that destroyed the weights of module 2 "
        "in slot 0, which runs from it next",
        "safe there: None, since no other module runs from slot 1",
        '    verify(load("rules:old")(Ring(modules=3, slots=2)))',
    ]
    assert [line for line in result.outlines if line in lines] == lines
    assert "Traceback" not in said
    assert "NotProved" not in said
    assert "pytest_ringproof.py" not in said


def test_a_violation_in_a_large_ring_is_told_in_words_alone(
    call: Call, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumeration, "LARGE", 17)
    source = "from rules import bits, old\ndef late(index, slots, modules):\n"
    source += "    return (old if modules > {} else bits)(index, slots, modules)\n"
    pytester.makepyfile(small=source.format(15), large=source.format(16))
    small = call("--ring-policies", "small", "--ring-policies", "large").stdout.str()
    assert "small:late, 16 modules, 3 slots: VIOLATED\n" in small
    assert "VIOLATED        large:late: smallest N=17, K=2 (" in small
    assert "large:late, 17 modules" not in small


@pytest.mark.parametrize("way", ["by default", "option", "ini"])
def test_what_holds_to_a_bound_passes_if_that_is_enough(
    call: Call, pytester: pytest.Pytester, way: str
) -> None:
    pytester.makeini(f"[pytest]\nring_policies_to_bound = {way == 'ini'}\n")
    more = ["--ring-policies-to-bound"] * (way == "option")
    result = call("--ring-policies", "rules:bits", "--ring-policies", "rules:old", *more)
    if way != "by default":
        result.assert_outcomes(passed=1, failed=1)
        return
    result.assert_outcomes(failed=2)
    text = "HOLDS_TO_BOUND  rules:bits: no violation in all rings to 14x14, and 40 random ones"
    result.stdout.fnmatch_lines([f"{text}*", "*not followed: __and__ of an integer*"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("typed", "UNKNOWN         rules:typed: refused, since it looks at more than numbers: "),
        ("half", "USAGE           rules:half: policy rules:half returned 0.5 for (index=0, "),
    ],
)
def test_what_is_not_proved_fails_with_the_reason(call: Call, name: str, text: str) -> None:
    result = call("--ring-policies", f"rules:{name}", "--ring-policies-to-bound")
    result.assert_outcomes(failed=1)
    assert [line for line in result.outlines if line.startswith(text)]
    assert "Traceback" not in result.stdout.str()


# ---- never a silent green


FILES = {
    "empty": "from rules import fixed\n",
    "broken": "import no_such_module_of_mine\n",
    "leaves": "raise SystemExit(0)\n",
    "wrong": "def f(index, slots, modules): ...\n__all__ = ['g']\n",
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nowhere", "nowhere: importing nowhere failed with ModuleNotFoundError: No module named"),
        ("broken", "broken: importing broken failed with ModuleNotFoundError: No module named"),
        ("leaves", "leaves: importing leaves failed with SystemExit: 0; "),
        ("empty", "empty has no policy of its own: a Policy, or a function with the parameters "),
        ("wrong", "wrong: __all__ names 'g', which it does not have"),
        ("rules:nope", "rules:nope: rules was imported but has no 'nope'"),
        ("rules:helper", "rules:helper can't be called with (index, slots, modules): too many"),
        ("rules:__name__", "a policy is a function (index, slots, modules) -> target or None; got"),
        ("rules:", "'rules:' is not of the form pkg.module:function"),
        ("", ": importing  failed with ValueError: Empty module name; "),
    ],
)
def test_a_name_that_gives_no_policy_is_an_error(
    call: Call, pytester: pytest.Pytester, name: str, text: str
) -> None:
    pytester.makepyfile(**FILES)
    result = call("--ring-policies", "rules:mine", f"--ring-policies={name}")
    result.assert_outcomes(errors=1)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [line for line in result.outlines if line.startswith(text)]
    assert "Traceback" not in result.stdout.str()


def test_without_the_solver_the_error_names_the_extra(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(rules=RULES, elsewhere=ELSEWHERE, z3="raise ImportError('none here')")
    command = ("-m", "pytest", "-p", "pytest_ringproof", "--ring-policies", "rules")
    run = python(*command, first=pytester.path)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "\nproofs needs the solver Z3: pip install 'ringproof[proofs]', or" in run.stdout
    assert "Traceback" not in run.stdout


# ---- beside other plugins


def test_two_processes_share_the_policies_and_the_report_has_them(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        rules=RULES,
        elsewhere=ELSEWHERE,
        conftest="import proofs.enumeration\nproofs.enumeration.LARGE = 14\n",
    )
    names = ["--ring-policies=rules:mine", "--ring-policies=rules:old"]
    command = ["-m", "pytest", "--assert=plain", "-p", "pytest_ringproof", "-p", "xdist", "-n"]
    run = python(*command, "2", *names, "--junitxml=report.xml", first=pytester.path)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "1 failed, 1 passed in " in run.stdout
    cases = list(ElementTree.parse(pytester.path / "report.xml").iter("testcase"))
    said = {(case.get("classname"), case.get("name")): case.find("failure") for case in cases}
    assert set(said) == {("rules", "mine"), ("rules", "old")}
    assert said["rules", "mine"] is None
    failure = said["rules", "old"]
    assert failure is not None
    assert "which runs from it next\nsafe there: None" in (failure.text or "")
    run = python(*command, "1", names[0], "--ring-policies=nowhere", first=pytester.path)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "nowhere: importing nowhere failed with" in run.stdout
    assert "1 error in " in run.stdout


def test_whoever_asks_for_no_policies_pays_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one="def test_one(): pass")
    source = """
        import sys, pytest
        before = set(sys.modules)
        import pytest_ringproof
        assert set(sys.modules) - before == {"pytest_ringproof"}
        code = pytest.main(["-q", "-p", "pytest_ringproof"])
        ours = {"schedule", "proofs", "z3"}
        print(int(code), sorted(ours & {name.partition(".")[0] for name in sys.modules}))
    """
    script = pytester.makepyfile(script=source)
    assert python(str(script), first=pytester.path).stdout.splitlines()[-1] == "0 []"


def test_once_installed_it_is_there_beside_any_package_named_proofs(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="ascii"))
    points = project["project"]["entry-points"]["pytest11"]
    info = pytester.mkdir("site") / "ringproof-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ringproof\nVersion: 0.1.0\n")
    lines = [f"{name} = {place}\n" for name, place in points.items()]
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    pytester.makepyfile(proofs="")
    path = Path(os.pathsep.join([str(ROOT), str(info.parent)]))
    help_text = ("-m", "pytest", "-p", "no:hypothesispytest", "-p", "no:anyio", "--help")
    run = python(*help_text, first=pytester.path, then=path)
    assert (run.returncode, run.stderr) == (0, "")
    assert "--ring-policies=MODULE" in run.stdout
    run = python(*help_text, "-p", "no:pytest_ringproof", first=pytester.path, then=path)
    assert (run.returncode, run.stderr) == (0, "")
    assert "--ring-policies" not in run.stdout
