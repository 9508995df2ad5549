"""One model from several threads: one after the other it is right; at once the second is refused
and the first goes on. Two models at once are right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from threading import Event, Lock

import pytest
import torch
from torch import nn

import runtime
from runtime.calls import Call
from schedule import OffloadError, Ring, Schedule
from tests.runtime.models import named_schedules
from tests.runtime.test_runtime_nested import LEAVING
from tests.runtime.threads import SECONDS, WIDTH, Slow, in_thread, paused, slow

X = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(1))
SCHEDULES = [LEAVING, *(one for size in [(3, 1), (3, 2)] for one in named_schedules(Ring(*size)))]


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def offloaded(model: nn.Sequential, schedule: Schedule | str, slots: int = 2) -> runtime.Offloaded:
    slots = slots if isinstance(schedule, str) else schedule.ring.slots
    return runtime.offload(model, list(model), slots=slots, policy=schedule)


# ---- at once


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s.policy}-{s.ring}")
def test_the_second_thread_is_refused_and_the_first_is_not_disturbed(schedule: Schedule) -> None:
    model = slow(3)
    expected = model(X)
    with offloaded(model, schedule) as it:
        model(X)
        for first, second in product(range(3), [0, 1, 2, None]):
            before = it.report()
            with paused(model[first], lambda: model(X)) as future:
                held, shown = it.report(), [*map(id, model[first].parameters())]
                with pytest.raises(OffloadError, match=r" was called in thread 'MainThread' while"):
                    (model if second is None else model[second])(X)
                assert it.report() == held
                assert [*map(id, model[first].parameters())] == shown
            assert torch.equal(future.result(), expected)
            after = it.report()
            assert (after.runs, after.misses) == (before.runs + 3, before.misses)
            # It is usable again, by whoever was refused, and nothing was lost meanwhile.
            assert torch.equal(model(X), expected)
            assert it.report().misses == before.misses
        assert it.report().copies > 0


def test_the_error_names_both_modules_and_both_threads() -> None:
    model = slow(3)
    with offloaded(model, "restart"), paused(model[1], lambda: model[1](X)):
        for what, call in ("2 (module 2)", lambda: model[2](X)), ("the model", lambda: model(X)):
            with pytest.raises(OffloadError) as caught:
                call()
            assert str(caught.value) == (
                f"{what} was called in thread 'MainThread' while 1 (module 1) runs in thread "
                f"'first_0': the threads would share its slots; let the calls follow each other, "
                f"for instance under a lock"
            )


@pytest.mark.parametrize(("policy", "second"), [("chain", 0), ("restart", 0), ("on_demand", 2)])
def test_unless_it_were_not_refused(
    policy: str, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: no run of another thread is found alive, and the first reads foreign weights."""
    monkeypatch.setattr("runtime.calls._modules_on_stack", lambda _: ())
    monkeypatch.setattr(
        "runtime.hooks.check_outliving", lambda *_: None
    )  # the first has them in hand
    model = slow(3)
    expected = model(X)
    with offloaded(model, policy):
        with paused(model[0], lambda: model(X)) as future:
            model[second](X)
        assert not torch.equal(future.result(), expected)


def test_while_one_thread_is_in_a_module_another_may_use_the_other_model() -> None:
    one, other = slow(3), slow(4)
    expected = one(X), other(X)
    with offloaded(one, "chain") as first, offloaded(other, "balanced") as second:
        for layer, in_other in product(one, other):
            with paused(layer, lambda: one(X)) as a, paused(in_other, lambda: other(X)) as b:
                pass
            assert torch.equal(a.result(), expected[0])
            assert torch.equal(b.result(), expected[1])
        assert min(first.report().copies, second.report().copies) > 0
        assert first.report().misses == second.report().misses == 0


def test_two_threads_between_whose_modules_the_other_runs_are_right() -> None:
    """That is no overlap but an alternating order; each module waits for its turn."""
    model = slow(3)
    expected, turn = model(X), Lock()

    def run() -> list[torch.Tensor]:
        found = []
        for _ in range(20):
            x = X
            for layer in model:
                with turn:
                    x = layer(x)
            found.append(x)
        return found

    with offloaded(model, "chain") as it, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(torch.no_grad()(run)) for _ in range(3)]
        assert all(torch.equal(y, expected) for f in futures for y in f.result(SECONDS))
        assert it.report().runs == 180
        assert it.report().copies > 0


def test_close_while_another_thread_is_in_a_module_is_right_there() -> None:
    model = slow(3)
    expected, parameters = model(X), list(model.parameters())
    for layer in model:
        it = offloaded(model, "chain")
        with paused(layer, lambda: model(X)) as future:
            it.close()
        assert torch.equal(future.result(), expected)
        assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))


# ---- one after the other


def test_a_pool_of_threads_is_right_and_misses_nothing() -> None:
    model, server = slow(3), Lock()
    batches = [X + number for number in range(12)]
    expected = [model(x) for x in batches]

    def serve(x: torch.Tensor) -> torch.Tensor:
        with server, torch.no_grad():
            return model(x)

    for schedule in SCHEDULES:
        with offloaded(model, schedule) as it, ThreadPoolExecutor(4) as pool:
            found = list(pool.map(serve, batches))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        report = it.report()
        assert (report.runs, report.misses) == (36, 0)
        assert report.copies >= 12


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("stays", [True, False], ids=["alive", "dead"])
def test_a_run_that_another_thread_gave_up_is_forgotten(
    kind: type[BaseException], stays: bool
) -> None:
    """Whether that thread is somewhere else now or has ended."""
    for schedule in SCHEDULES:
        model = slow(3)
        expected = model(X)
        with offloaded(model, schedule) as it:
            for layer in model:
                before = it.report()
                with ThreadPoolExecutor(1) as pool:
                    given_up(pool, layer, model, kind)
                    if not stays:
                        pool.shutdown()
                    assert torch.equal(model(X), expected)
                    assert it.report().misses <= before.misses + schedule.ring.slots
                    assert torch.equal(in_thread(partial(model, X)), expected)
            assert it.report().copies > 0


def given_up(
    pool: ThreadPoolExecutor, layer: Slow, model: nn.Module, kind: type[BaseException]
) -> None:
    def wait() -> None:
        raise kind

    def run() -> bool:
        try:
            model(X)
        except BaseException as error:
            return type(error) is kind
        return False

    layer.wait = wait
    assert pool.submit(torch.no_grad()(run)).result(SECONDS)


def test_unless_its_thread_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twin: a run counts as under way until a hook tells that it ended."""
    model = slow(3)
    with offloaded(model, "chain") as it:
        with ThreadPoolExecutor(1) as pool:
            given_up(pool, model[1], model, KeyboardInterrupt)
            with monkeypatch.context() as patch:
                patch.setattr("runtime.hooks.alive", keep_all)
                with pytest.raises(OffloadError, match="runs in thread"):
                    model(X)
        model(X)
        assert it.report().runs == 5


def keep_all(calls: list[Call], *_: object) -> list[Call]:
    return list(calls)


# ---- asyncio


def test_what_asyncio_cancels_in_an_executor_runs_on_and_is_not_disturbed() -> None:
    """Cancelled is the waiting alone. The next call is refused until the thread has ended."""
    model = slow(3)
    expected = model(X)
    found: list[torch.Tensor] = []

    async def serve() -> None:
        inside, on = Event(), Event()
        model[1].wait = lambda: (inside.set(), on.wait(SECONDS))
        run = torch.no_grad()(lambda: found.append(model(X)))
        task = asyncio.create_task(asyncio.to_thread(run))
        await asyncio.to_thread(inside.wait, SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(OffloadError, match="runs in thread 'asyncio_"):
            await asyncio.to_thread(run)
        on.set()
        while not found:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(run)

    with offloaded(model, "chain") as it:
        asyncio.run(serve())
        assert it.report().misses == 0
        assert it.report().copies > 0
    assert len(found) == 2
    assert all(torch.equal(x, expected) for x in found)


def test_a_task_that_is_cancelled_between_modules_costs_misses_alone() -> None:
    model = slow(5)
    expected = model(X)

    async def walk(stop: int) -> torch.Tensor:
        x = X
        for index, layer in enumerate(model):
            if index == stop:
                await asyncio.Event().wait()  # for ever
            x = layer(x)
            await asyncio.sleep(0)
        return x

    async def serve(stop: int) -> list[torch.Tensor]:
        cut = asyncio.create_task(walk(stop))
        await asyncio.sleep(0)
        found = [await walk(5)]  # in turns with the other, module by module
        cut.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cut
        return [*found, *(await asyncio.gather(walk(5), walk(5))), await walk(5)]

    with offloaded(model, "chain") as it:
        for stop in range(5):
            assert all(torch.equal(x, expected) for x in asyncio.run(serve(stop))), stop
        assert it.report().misses > 0
