"""Fields of JSON data: each is what it must be, or a ProgramError that begins with its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from schedule.errors import ProgramError

Names = tuple[str, ...]


def only(found: dict[str, Any], needed: Names, inside: str = "", optional: Names = ()) -> None:
    """Exactly these fields."""
    for name in needed:
        if name not in found:
            raise ProgramError(f"{inside}{name}: missing")
    for name in found:
        if name not in needed and name not in optional:
            raise ProgramError(f"{inside}{plain(name)}: unknown field")


def list_of(name: str, value: Any, entry: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ProgramError(f"{name}: a list is needed, not {kind_of(value)}")
    return tuple(entry(f"{name}[{at}]", each) for at, each in enumerate(value))


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object as JSON's reader has it; of two values by one name another reader might believe
    the other."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ProgramError(f"{plain(name)}: is there twice")
        found[name] = value
    return found


def plain(name: str) -> str:
    """A field's name, so that it can be printed."""
    return name if name.isascii() and name.isprintable() else ascii(name)


def text_of(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ProgramError(f"{name}: a text is needed, not {kind_of(value)}")
    if not value.isprintable():  # it is printed again, and must not look like a verdict
        raise ProgramError(f"{name}: {value!a} has characters that can't be printed")
    return value


def number_of(name: str, value: Any) -> int:
    if type(value) is not int:  # a bool is no number
        raise ProgramError(f"{name}: an integer is needed, not {kind_of(value)}")
    return value


def within(name: str, value: Any, size: int, least: int = 0) -> int:
    if not least <= number_of(name, value) < size:
        raise ProgramError(f"{name}: {value} is outside of {least} .. {size - 1}")
    return int(value)


def kind_of(value: Any) -> str:
    """A JSON value, short."""
    try:
        text = json.dumps(value)
    except RecursionError:  # it could be read just so
        return "what is nested too deeply"
    return text if len(text) <= 40 else f"{text[:37]}..."
