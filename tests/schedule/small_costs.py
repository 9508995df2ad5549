"""Costs of small models, for what is planned, said and drawn."""

from __future__ import annotations

from schedule.costs import Costs, Link, Module, Part, Workload

MB = 10**6


def costs(
    sizes: tuple[int, ...] = (400, 100, 300, 100),
    decode: tuple[int, ...] = (2, 1, 2, 1),
    prefill: tuple[int, ...] = (40, 10, 30, 10),
    resident: int = 50,
    streams: int = 1,
) -> Costs:
    """Sizes in MB, each module half attention and half mlp; times in milliseconds."""
    number = len(sizes)
    return Costs(
        modules=tuple(
            Module(f"layers.{at}", (Part("attention", size * MB // 2), Part("mlp", size * MB // 2)))
            for at, size in enumerate(sizes)
        ),
        workloads=(
            Workload("decode", tuple(one * MB for one in decode), (0,) * (number + 1), 64),
            Workload("prefill", tuple(one * MB for one in prefill), (0,) * (number + 1), 1),
        ),
        link=Link(10**10, 0, streams),
        resident=resident * MB,
        model="small",
        device="a test",
    )
