"""What users wrote: called within a budget, and whatever it raises as a PolicyError."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from schedule.budget import OutOfBudget, within_budget
from schedule.errors import PolicyError

Result = TypeVar("Result")


class Guarded(Generic[Result]):
    """A function under a budget of instructions, its exceptions turned into PolicyError. It has
    no attributes that ``functools.wraps`` could copy to another function."""

    __slots__ = ("function", "name")

    def __init__(self, function: Callable[..., Result], name: str) -> None:
        self.function, self.name = function, name

    def __call__(self, *arguments: Any) -> Result:
        """What the function returns. PolicyError if it raises or does not return."""
        try:
            return within_budget(self.function, *arguments)
        except OutOfBudget as error:
            raise PolicyError(
                f"{self.name}{arguments} {error}; a policy is plain arithmetic on its arguments"
            ) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a SystemExit too: a policy does not end the program
            what = f"{type(error).__name__}: {shown(error, str)}"
            raise PolicyError(
                f"{self.name}{arguments} raised {what}; a policy returns a number or None"
            ) from error


def guarded(function: Callable[..., Result], name: str) -> Callable[..., Result]:
    """The function, guarded; one that is already, as it is."""
    return function if type(function) is Guarded else Guarded(function, name)


def bare(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function that ``guarded`` guards; any other function as it is."""
    return function.function if type(function) is Guarded else function


def shown(value: object, how: Callable[[object], str] = repr) -> str:
    """A user's value as text on one line; its own code for that may fail."""
    try:
        text = how(value)
    except Exception:
        return "a value that can't be printed"
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def call_text(arguments: dict[str, object]) -> str:
    """The arguments of a call, by name, as text."""
    return "(" + ", ".join(f"{name}={value}" for name, value in arguments.items()) + ")"


def name_of(function: object) -> str:
    """A function as ``module:name``, as it is given on the command line."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{module}:{name}" if module else name


def require_target(function: object) -> None:
    """PolicyError unless this can be called as a rule for targets."""
    if not callable(function) or isinstance(function, type):
        raise PolicyError(
            f"a policy is a function (index, slots, modules) -> target or None; got {function!r}"
        )
    try:
        inspect.signature(function).bind(0, 1, 1)
    except TypeError as error:
        raise PolicyError(
            f"{name_of(function)} can't be called with (index, slots, modules): {error}"
        ) from error
    except ValueError:
        pass  # a built-in without a signature: the first call will tell
