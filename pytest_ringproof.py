"""Ringproof's plugin for pytest: every policy of a module as a test, which passes if it is proved.

    pytest --ring-policies pkg.module --ring-policies pkg.other:function

It is apart from the package ``proofs``, and imports nothing of Ringproof's until policies are asked
for: every pytest run of everybody who has Ringproof installed imports this file, and must neither
pay for the solver nor fail over another package that is named ``proofs``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

OPTION, TO_BOUND = "ring_policies", "ring_policies_to_bound"
LARGEST_SHOWN = 16
"""Larger refuted rings are told in words alone: their lanes would not fit a page."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options, on the command line and in the configuration file."""
    group = parser.getgroup("ringproof", "Ringproof")
    group.addoption(
        "--ring-policies",
        dest=OPTION,
        action="append",
        default=[],
        metavar="MODULE",
        help="prove the policies of pkg.module, or pkg.module:function; again for more",
    )
    text = "a policy that is not proved passes if it holds to a bound"
    group.addoption("--ring-policies-to-bound", dest=TO_BOUND, action="store_true", help=text)
    parser.addini(OPTION, "as --ring-policies, one a line", type="linelist")
    parser.addini(TO_BOUND, text, type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Collect the policies after the tests, before anything is deselected or put in order."""
    config = session.config
    # Who names tests by id wants these alone: not those that the configuration adds to every run.
    by_id = all("::" in argument for argument in config.args)
    wanted = [*([] if by_id else config.getini(OPTION)), *config.getoption(OPTION)]
    if not wanted:
        return
    # As with ``python -m``, and as with pytest's own ini option ``pythonpath``.
    for folder in (str(config.rootpath), str(config.invocation_params.dir)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    found: dict[str, pytest.Item] = {}
    for name in dict.fromkeys(wanted):
        for item in session.genitems(PolicyModule.from_parent(session, name=name)):
            found.setdefault(item.nodeid, item)
    items += found.values()


class PolicyModule(pytest.Collector):
    """What one name of ``--ring-policies`` points to: a module, or one policy of it."""

    def __init__(self, *, name: str, **more: Any) -> None:
        super().__init__(name=name, nodeid=name.partition(":")[0], **more)

    def collect(self) -> Iterator[pytest.Item]:
        """One test a policy."""
        try:
            import proofs  # noqa: F401  # says which extra is missing, or which package is foreign
            from schedule.loading import load, policy_names

            names = (self.name,) if ":" in self.name else policy_names(self.name)
            for name in names:
                load(name)
        except (ImportError, ValueError) as error:
            raise self.CollectError(str(error)) from error
        module, _, _ = names[0].partition(":")
        file = getattr(sys.modules[module], "__file__", None)
        for name in names:
            policy = name.partition(":")[2]
            path = Path(file) if file else self.path
            yield PolicyItem.from_parent(self, name=policy, path=path, loaded=name)


class PolicyItem(pytest.Item):
    """One policy; ``loaded`` is its name for ``schedule.loading.load``."""

    def __init__(self, *, loaded: str, **more: Any) -> None:
        super().__init__(**more)
        self.loaded = loaded

    def runtest(self) -> None:
        """NotProved unless the policy is proved; or holds to a bound, if that is enough."""
        from proofs.report import Verdict
        from proofs.user import prove_policy
        from schedule.loading import load

        result = prove_policy(load(self.loaded), self.loaded)
        to_bound = self.config.getoption(TO_BOUND) or self.config.getini(TO_BOUND)
        enough = {Verdict.PROVED} | ({Verdict.HOLDS_TO_BOUND} if to_bound else set())
        if result.verdict not in enough:
            raise NotProved(_text(result))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """What is wrong with the policy; where in the plugin that was found is of no use."""
        if isinstance(excinfo.value, NotProved):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


class NotProved(Exception):
    """The policy is not proved; the message says why."""


def _text(result: Any) -> str:
    """As ``python -m proofs policy`` says it, and a small ring that is violated as lanes."""
    from schedule.drawing import draw
    from schedule.timeline import show

    if result.smallest is None:
        return str(result)
    ring = result.smallest.schedule.ring
    if max(ring.modules, ring.slots) > LARGEST_SHOWN:
        return str(result)
    return f"{show(draw(result.smallest, 1))}\n\n{result}"
