"""Whether anything keeps a module's weights in a slot, or a view of them, when its run is over: the
slot will hold other weights when it is read.

References are counted at almost no cost. Only where there are more than before it is looked for
who has them, and who does no harm: autocast's cache, a cycle that nothing refers to, the frames of
a traceback.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from runtime.interpreter import Interpreter
from runtime.outputs import tensors
from runtime.sets import DeviceSet
from runtime.views import in_attributes
from schedule.errors import OffloadError


def check_outliving(
    module: nn.Module, weights: DeviceSet, interpreter: Interpreter, output: Any = None
) -> None:
    """OffloadError if something keeps a view of the weights with which this module ran, or one of
    them, or if it gave one of them other bytes; output: what the module returned."""
    if weights.held is None or weights.references() == weights.held:
        return
    interpreter.arena.refuse_moved(weights)
    who = who_keeps(module, weights, interpreter, output)
    if who is not None:
        name = interpreter.arena.layouts[weights.module].name
        raise OffloadError(
            f"{who}, but the slot of {name} will hold others when it is read: keep or return a "
            f"copy, .clone(), or leave the module out"
        )


def raised(module: nn.Module) -> bool:
    """Asked in a hook after the module: whether its call is about to end by an exception. Its
    frames, which refer to views, are then no longer running, and not yet gone."""
    error = sys.exc_info()[1]
    caught = None if error is None or error.__traceback__ is None else error.__traceback__.tb_frame
    if caught is None or caught.f_code is not nn.Module._call_impl.__code__:
        return False
    return caught.f_locals["self"] is module


def who_keeps(
    module: nn.Module, weights: DeviceSet, interpreter: Interpreter, output: Any = None
) -> str | None:
    """What keeps something of these weights beyond the run, as the beginning of a sentence."""
    torch.clear_autocast_cache()  # what it cast it refers to, until autocast ends
    arena = interpreter.arena
    layout = arena.layouts[weights.module]
    if any(arena.in_slot(weights, leaf) for leaf in tensors([output])):
        return f"an output of {layout.name} is a view of its weights"
    for part in module.modules():
        for where, tensor in in_attributes(part):
            if arena.in_slot(weights, tensor):
                return (
                    f"attribute {where} of a {type(part).__name__} in {layout.name} keeps a view "
                    f"of its weights"
                )
    if _goes_away(weights, interpreter) or _only_in_frames(weights):
        weights.held = weights.references()
        return None
    grown = weights.grown()
    if grown is None:
        return None
    return (
        f"something (a cache, an argument, a closure, a variable) keeps {layout.path(grown)}, or "
        f"a view of it"
    )


def _goes_away(weights: DeviceSet, interpreter: Interpreter) -> bool:
    """Whether what refers to these weights is gone by itself, sooner or later."""
    if weights.grown() is None:
        return True
    gc.collect(1)  # a cycle that this run made, most likely
    if weights.grown() is None:
        return True
    interpreter.streams.synchronize()  # what waits in a queue to be launched
    time.sleep(0.01)  # what another thread reads just now
    gc.collect()
    return weights.grown() is None


def _only_in_frames(weights: DeviceSet) -> bool:
    """Whether all that refer to these weights, and to views of them, are frames of functions that
    ended by an exception, which somebody keeps: nothing reads them any more."""
    ours, counted = weights.containers(), set(map(id, weights.counted))
    views = list(_views(weights))
    ours |= {id(views), id(sys._getframe())}
    holders = [one for one in gc.get_referrers(*views) if id(one) not in ours]
    if not holders or not all(isinstance(one, FrameType) for one in holders):
        return False
    ours.add(id(holders))
    for view in views:  # no closure over it: that would be one more that refers to it
        if id(view) not in counted and all(id(one) in ours for one in gc.get_referrers(view)):
            return False  # something that is not Python's has it
    return True


def _views(weights: DeviceSet) -> Iterator[torch.Tensor]:
    """All tensors there are over the same storages, these weights among them."""
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):
            try:
                lies = weights.lies_here(one)
            except Exception:  # of whatever kind of tensor there is in the process
                continue
            if lies:
                yield one
