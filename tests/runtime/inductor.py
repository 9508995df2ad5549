"""Inductor, with its own or any other order in which a graph's nodes may be executed."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._guards import TracingContext
from torch._inductor import config, memory

with warnings.catch_warnings():  # of torch, about itself
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._inductor.fx_passes.post_grad import decompose_auto_functionalized
    from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops
    from torch._inductor.fx_utils import FakeTensorUpdater

ORDERS = ("as they are", "bfs", "dfs", "lpmf", "by chance")


class Orders:
    """A backend that compiles each graph in several orders, and runs it in the one of ``order``.

    Up to inductor's scheduler a graph is the same for all of them. All operators are calls, none
    is fused with another: that needs no compiler of C++, and leaves more that can be moved.
    sizes: how many nodes each graph had that was put in order.
    """

    def __init__(self, orders: Sequence[str] = ORDERS) -> None:
        self.orders, self.order = orders, orders[0]
        self.sizes: list[int] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        with _uncached(), config.patch(fallback_by_default=True):
            made: Callable[..., Any] = compile_fx(graph, inputs, inner_compile=self._inner)
        return made

    def _inner(self, graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        made = {}
        for order in self.orders:
            strides = TracingContext.get().output_strides
            if strides:  # those of the same graph in the order before
                strides.clear()
            with _ordered(order, self.sizes):
                made[order] = compile_fx_inner(copy.deepcopy(graph), inputs, **options)

        def run(values: list[Any]) -> Any:
            return made[self.order](values)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


@contextmanager
def _uncached() -> Iterator[None]:
    with (
        config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield


@contextmanager
def _ordered(order: str, sizes: list[int]) -> Iterator[None]:
    """Graphs are put in this order by inductor's scheduler."""
    chance = random.Random(0)

    def reorder(nodes: list[Any], buffers: Any, fused: Any, inputs: Any, outputs: Any) -> list[Any]:
        sizes.append(len(nodes))
        _, freeable = memory.prepare_planning_info(nodes, buffers, fused, inputs, outputs)
        match order:
            case "as they are":
                return nodes
            case "by chance":
                return _by_chance(nodes, chance)
            case "lpmf":
                return memory.topological_sort_lpmf(nodes, freeable, buffers, outputs)
        found: list[Any] = getattr(memory, f"topological_sort_{order}")(nodes)
        return found

    with patch.object(memory, "reorder_for_peak_memory", reorder):
        yield


def _by_chance(nodes: Sequence[Any], chance: random.Random) -> list[Any]:
    """Each node after those that it depends on; else by chance."""
    missing = {node: len(node.mpi_node.pred_nodes) for node in nodes}
    ready, found = [node for node in nodes if not missing[node]], []
    while ready:
        node = ready.pop(chance.randrange(len(ready)))
        found.append(node)
        for after in node.mpi_node.succ_nodes:
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    assert len(found) == len(nodes), "a graph has no cycles"
    return found


def in_place(graph: torch.fx.GraphModule, _: Any) -> Any:
    """A compiler for AOTAutograd that executes operator by operator, on any device. As inductor
    does it, operators get what they declare as written itself, where nobody needs the old value;
    the backend aot_eager copies all of it."""
    reinplace_inplaceable_ops(FakeTensorUpdater(graph), graph.graph)
    decompose_auto_functionalized(graph.graph)
    graph.recompile()

    def run(values: list[Any]) -> Any:
        return graph(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
