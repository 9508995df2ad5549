"""Costs of made-up models, for tests of the planner."""

from __future__ import annotations

from random import Random

from schedule.costs import SECOND, Costs, Link, Module, Part, Workload


def equal(
    modules: int, run: int = 1, size: int = 2, parts: int = 1, streams: int = 1, latency: int = 0
) -> Costs:
    """Of equal modules, of which a byte is copied in a nanosecond."""
    cut = tuple(Part(f"part {number}", size // parts) for number in range(parts))
    return Costs(
        tuple(Module(f"layer {number}", cut) for number in range(modules)),
        (Workload("decode", (run,) * modules, (0,) * (modules + 1)),),
        Link(SECOND, latency, streams),
    )


def drawn(random: Random, modules: int, parts: int = 1, streams: int = 1) -> Costs:
    """Of modules of any sizes: copies take between a third and thirty times what runs take."""
    found = tuple(
        Module(
            f"layer {number}",
            tuple(Part(f"part {part}", random.randint(1, 20)) for part in range(parts)),
            random.randint(0, 1),
        )
        for number in range(modules)
    )
    copied = sum(module.size for module in found) / modules
    longest = max(1, int(2 * copied / random.choice((0.3, 1, 2, 5, 30))))
    workloads = tuple(
        Workload(
            name,
            tuple(random.randint(0, longest) for _ in found),
            tuple(random.choice((0, 0, 1)) for _ in range(modules + 1)),
            weight,
        )
        for name, weight in (("decode", 3), ("prefill", 1))[: random.randint(1, 2)]
    )
    return Costs(found, workloads, Link(SECOND, random.choice((0, 2)), streams), 7)
