"""A whole test under the sanitizer: whatever model it offloads, by whatever means.

But not those without a guard, which are there to be wrong; and compiled code shows no operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch
from weakref import WeakSet

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

import runtime
from runtime.hooks import OFF


class Sanitized(TorchDispatchMode):
    """models: those offloaded so far.     looked: how many operators their sanitizers saw."""

    def __init__(self) -> None:
        super().__init__()
        self.models, self.looked = WeakSet[runtime.Offloaded](), 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        with ExitStack() as stack:
            for one in list(self.models):
                stack.enter_context(runtime.sanitize(one))
                self.looked += 1
            return func(*args, **(kwargs or {}))


@pytest.fixture
def sanitized() -> Iterator[Sanitized]:
    """For ``usefixtures``."""
    mode, whole = Sanitized(), runtime.Offloaded.__init__

    def init(offloaded: runtime.Offloaded, *arguments: Any, **options: Any) -> None:
        whole(offloaded, *arguments, **options)
        if offloaded.on_miss != OFF:
            mode.models.add(offloaded)

    with patch.object(runtime.Offloaded, "__init__", init), mode:
        yield mode
