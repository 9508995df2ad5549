"""Hooks of several threads: one at a time, and no interrupt keeps the others out."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext, suppress
from threading import Event
from typing import Any

import pytest
import torch

from runtime.interpreter import Interpreter
from schedule import OffloadError
from tests.runtime.interrupt import interrupted_at
from tests.runtime.test_runtime_threads import (  # noqa: F401, a fixture
    X,
    _no_grad,
    offloaded,
)
from tests.runtime.threads import SECONDS, in_thread, slow


def together(monkeypatch: pytest.MonkeyPatch, hook: str, patience: float) -> bool:
    """Whether a second thread gets into a hook while a first one is in this one."""
    both, inside, started = Event(), [0], []
    issue = Interpreter.issue

    def noted(interpreter: Interpreter, bound: Any) -> None:
        inside[0] += 1
        if inside[0] > 1:
            both.set()
        if not started and sys._getframe(1).f_code.co_name == hook:
            started.append(threading.Thread(target=second))
            started[0].start()
            both.wait(patience)
        issue(interpreter, bound)
        inside[0] -= 1

    def second() -> None:
        with suppress(OffloadError), torch.no_grad():  # it may come while the first one's runs
            model[2](X)

    model = slow(3)
    with offloaded(model, "chain"):
        monkeypatch.setattr(Interpreter, "issue", noted)
        model[0](X)
        started[0].join(SECONDS)
    return both.is_set()


HOOKS = ["_begin", "_depart"]


@pytest.mark.parametrize("hook", HOOKS)
def test_two_hooks_do_not_run_at_once(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not together(monkeypatch, hook, patience=0.1)


@pytest.mark.parametrize("hook", HOOKS)
def test_without_the_lock_they_would(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.hooks.RLock", nullcontext)
    assert together(monkeypatch, hook, patience=SECONDS)


class Checked:
    """A lock that says so where it is never given back; ``leaks``: as soon as a hook raises."""

    leaks = False

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        assert self.lock.acquire(timeout=1), "the lock was left locked"

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not self.leaks:
            self.lock.release()


@pytest.mark.filterwarnings("ignore:module forward hook with")
@pytest.mark.parametrize("leaks", [False, True])
def test_an_interrupt_at_any_line_does_not_keep_other_threads_out(
    leaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its twin, where it would."""
    monkeypatch.setattr("runtime.hooks.RLock", Checked)
    monkeypatch.setattr(Checked, "leaks", leaks)
    model = slow(3)
    expected, places = model(X), 0
    with offloaded(model, "chain") as it:
        with pytest.raises(AssertionError, match="left locked") if leaks else nullcontext():
            while (where := interrupted_at(places + 1, lambda: model(X))) is not None:
                places += 1
                assert torch.equal(in_thread(lambda: model(X)), expected), where
        assert places > 40 or leaks
        it._hooks.lock = threading.RLock()  # close() comes by as well
