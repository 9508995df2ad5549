"""What a check of the machine finds, and how a function becomes a check."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

VERDICTS = OK, FAIL, ABSENT = "ok", "FAIL", "not here"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found. verdict: OK, FAIL, or ABSENT where the device has no such thing."""

    name: str
    verdict: str
    sentence: str


Check = Callable[[torch.device], Finding]


class Failed(Exception):
    """What is wrong, as the check's sentence."""


def check_named(name: str, cpu: str = "") -> Callable[[Callable[[torch.device], str]], Check]:
    """A check from a function that returns its sentence, or raises with it.
    cpu: why there is nothing to check on a CPU, if so."""

    def decorate(look: Callable[[torch.device], str]) -> Check:
        @functools.wraps(look)
        def check(device: torch.device) -> Finding:
            if cpu and device.type == "cpu":
                return Finding(name, ABSENT, f"{cpu}: this needs an accelerator")
            try:
                return Finding(name, OK, look(device))
            except Failed as error:
                return Finding(name, FAIL, str(error))
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                return Finding(name, FAIL, f"it raised {type(error).__name__}: {first}")

        return check

    return decorate


def require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise)
