"""The shortest pass of all, by brute force: itself against a slower search that takes nothing for
granted, the lower bounds and the planner against it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import chain, combinations
from random import Random

import pytest

from proofs.optimum import Problem, best_pass
from schedule.bounds import BYTES, COMPUTE, ROOM, WINDOWS, fewest_bytes, lower_bounds
from schedule.costs import SECOND, Costs, Link, Module, Part, Workload
from schedule.plan import plan

# ---- by hand


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        # Everything fits, and is copied once for all.
        (Problem(((1,),), (3,), 1), 3),
        (Problem(((1, 2), (3,)), (2, 5), 6, 9, 9), 7),
        # 0.1. over and over: a copy has no room before the run is over.
        (Problem(((1,), (1,)), (1, 1), 1), 4),
        (Problem(((1,), (1,)), (2, 3), 1, per_byte=4, latency=5), 5 + 2 * 9),
        # 0, 1 and 2 share a byte and another: each is copied beside the run before it.
        (Problem(((1,), (1,), (1,)), (1, 1, 1), 2), 3),
        # Here the copies take twice as long as the runs, and follow each other.
        (Problem(((1,), (1,), (1,)), (1, 1, 1), 2, per_byte=2), 6),
        # In runs that take no time nothing is copied: 3/2 modules a pass, as few as can be, are
        # replaced in memory for two.
        (Problem(((1,), (1,), (1,)), (0, 0, 0), 2), Fraction(3, 2)),
        # One byte of each stays. While one runs there is no room, so the others' follow.
        (Problem(((1, 1), (1, 1)), (1, 1), 3), 4),
        # And both of a module at once would be worse by a latency less: 2 (1 + 1 + 1).
        (Problem(((1, 1), (1, 1)), (1, 1), 3, latency=1), 6),
        (Problem(((1, 1), (1, 1)), (1, 1), 2, latency=1), 2 * (1 + 1 + 2)),
        # Nothing but what is on the device; and a rest of the pass that hides a copy.
        (Problem(((), ()), (1, 2), 0), 3),
        (Problem(((1,), (), (1,), ()), (1, 3, 1, 2), 1, per_byte=3), 1 + 3 + 1 + 3),
    ],
)
def test_the_shortest_pass_by_hand(problem: Problem, expected: Fraction) -> None:
    assert best_pass(problem) == expected


def test_it_is_less_than_any_one_pass_that_is_repeated() -> None:
    """Four modules in memory for two, a copy as long as four runs: 44 units for three passes."""
    assert best_pass(Problem(((1,),) * 4, (1,) * 4, 2, per_byte=4)) == Fraction(44, 3)


@pytest.mark.parametrize(
    ("items", "run", "memory", "message"),
    [
        (((1,),), (1, 1), 1, "2 run times for 1 modules"),
        ((), (), 1, "0 run times for 0 modules"),
        (((1,),), (-1,), 1, "a run takes no less than nothing"),
        (((1, 0),), (1,), 1, "an item has at least one byte"),
        (((1,), (1, 1)), (1, 1), 1, "a module has more than 1 bytes"),
    ],
)
def test_what_is_no_problem(
    items: tuple[tuple[int, ...], ...], run: tuple[int, ...], memory: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Problem(items, run, memory)


# ---- against a search of unit steps, in each of which anything may be dropped or begin

STEPS = 600
Plain = tuple[int, int, frozenset[int], frozenset[int], int]
"""The module, what is left of its run, items in memory, items copied now, what is left of that."""


def subsets(items: frozenset[int]) -> list[frozenset[int]]:
    found = chain.from_iterable(combinations(sorted(items), n) for n in range(len(items) + 1))
    return [*map(frozenset, found)]


def most_passes(problem: Problem, steps: int) -> int:
    """How many passes can end within so many units of time."""
    names = [(module, item) for module, one in enumerate(problem.items) for item in range(len(one))]
    own = [
        frozenset(number for number, (owner, _) in enumerate(names) if owner == module)
        for module in range(len(problem.items))
    ]
    size = [problem.items[module][item] for module, item in names]

    @cache
    def following(state: Plain) -> list[tuple[Plain, int]]:
        module, left, there, copied, copying = state
        found = set()
        for run in {left, problem.run[module] if not left and own[module] <= there else left}:
            read = own[module] if run else frozenset[int]()
            for stays in subsets(there - read):
                here = stays | read
                starts = [(copied, copying)]
                for items in () if copied else own:
                    for some in subsets(items - here)[1:]:
                        total = sum(size[one] for one in some)
                        if sum(size[one] for one in here) + total <= problem.memory:
                            time = problem.latency + problem.per_byte * total
                            starts.append((some, time))
                for going, time in starts:
                    ends = run == 1
                    after = (module + ends) % len(own), max(0, run - 1)
                    lands = going if time == 1 else frozenset[int]()
                    bringing = going - lands
                    now = (*after, here | lands, bringing, max(0, time - 1))
                    found.add((now, int(ends and after[0] == 0)))
        return [*found]

    nothing = frozenset[int]()
    reached: dict[Plain, int] = {(0, 0, nothing, nothing, 0): 0}
    for _ in range(steps):
        further: dict[Plain, int] = {}
        for state, passes in reached.items():
            for after, ended in following(state):
                if further.get(after, -1) < passes + ended:
                    further[after] = passes + ended
        reached = further
    return max(reached.values())


PLAIN = (
    Problem(((1,), (1,)), (1, 1), 1),
    Problem(((1,), (1,), (1,)), (1, 1, 1), 2, per_byte=2),
    Problem(((1,), (1,), (1,)), (1, 2, 1), 2, per_byte=1, latency=1),
    Problem(((1,), (2,), (1,)), (1, 1, 1), 3, per_byte=2),
    Problem(((1,), (2,), (1,)), (2, 1, 1), 2),
    Problem(((1, 1), (1, 1)), (1, 1), 3),
    Problem(((1, 1), (1, 1)), (1, 1), 3, latency=1),
    Problem(((1, 1), (1, 1)), (1, 1), 2, latency=1),
    Problem(((2, 1), (1,)), (1, 1), 3, latency=1),
    Problem(((1,), (), (1,)), (1, 2, 1), 1, per_byte=3),
    Problem(((1,),) * 4, (1,) * 4, 2, per_byte=2),
    Problem(((1,),) * 4, (1,) * 4, 3, per_byte=3),
)


@pytest.mark.parametrize("problem", PLAIN, ids=range(len(PLAIN)))
def test_no_step_by_step_search_ends_more_passes_or_fewer(problem: Problem) -> None:
    """But for those that begin and end the search: two."""
    expected = STEPS / best_pass(problem)
    assert expected - 2 <= most_passes(problem, STEPS) <= expected + 1


# ---- bounds and plans

CASES = 150


@cache
def case(seed: int) -> tuple[Costs, int, Problem]:
    """A model on one copy stream, bytes for its modules, and the same as a problem."""
    random = Random(seed)
    modules = random.randint(1, 6)
    most = random.choice((1, 2 if modules < 5 else 1, 3 if modules < 4 else 1))
    items = [
        tuple(random.randint(1, random.choice((1, 3))) for _ in range(random.randint(1, most)))
        for _ in range(modules)
    ]
    if random.random() < 0.3:
        items = [(1,) * most] * modules
    least = random.choice((0, 1, 1))
    run = [random.randint(least, random.choice((least, 4))) for _ in range(modules)]
    rest = random.choice((0, 0, 2))
    between = [random.randint(0, rest) for _ in range(modules + 1)]
    memory = random.randint(max(map(sum, items)), sum(map(sum, items)))
    link = Link(SECOND // random.choice((1, 2, 4)), random.choice((0, 0, 1, 3)))
    costs = Costs(
        tuple(
            Module(f"m{at}", tuple(Part(f"p{part}", size) for part, size in enumerate(one)))
            for at, one in enumerate(items)
        ),
        (Workload("decode", tuple(run), tuple(between)),),
        link,
    )
    # What stays on the device are modules without items.
    steps = [*chain.from_iterable(zip(((),) * modules, items, strict=True)), ()]
    times = [*chain.from_iterable(zip(between, run, strict=False)), between[-1]]
    problem = Problem(tuple(steps), tuple(times), memory, SECOND // link.bandwidth, link.latency)
    return costs, memory, problem


@cache
def best(seed: int) -> Fraction:
    return best_pass(case(seed)[2])


def test_no_lower_bound_is_more_than_the_shortest_pass_and_each_is_met() -> None:
    met: Counter[str] = Counter()
    for seed in range(CASES):
        costs, memory, _ = case(seed)
        for bound in lower_bounds(costs, costs.workloads[0], memory):
            assert bound.time <= best(seed), (seed, bound)
            met[bound.name] += 0 < bound.time == best(seed)
    least = {COMPUTE: 40, BYTES: 1, WINDOWS: 60, ROOM: 40}
    assert all(met[name] >= number for name, number in least.items()), met


@pytest.mark.parametrize(
    ("sizes", "memory"),
    [((1, 1, 1), 2), ((1,) * 4, 2), ((1,) * 4, 3), ((1,) * 5, 3), ((2, 1, 1), 3)],
)
def test_the_fewest_bytes_are_what_moves_if_runs_take_no_time(
    sizes: tuple[int, ...], memory: int
) -> None:
    """Else a module that is being read leaves no room for what is copied at that time."""
    items = tuple((1,) * size for size in sizes)
    assert best_pass(Problem(items, (0,) * len(sizes), memory)) == fewest_bytes(sizes, memory) > 0


def test_no_plan_is_less_than_the_shortest_pass_and_many_are_as_short() -> None:
    met: Counter[str] = Counter()
    for seed in range(CASES):
        costs, memory, _ = case(seed)
        found = plan(costs, memory)
        assert found.time >= best(seed), seed
        assert plan(costs, memory, captured=True).time >= best(seed), seed
        met["as short"] += found.time == best(seed)
        met["as short, and longer than compute"] += (
            found.time == best(seed) > costs.workloads[0].total
        )
    assert (met["as short"] >= 100, met["as short, and longer than compute"] >= 40) == (True,) * 2
