"""Find a policy by its name, or by ``pkg.module:function``."""

from __future__ import annotations

import importlib
from typing import cast

from schedule.arithmetic import Target
from schedule.errors import PolicyError
from schedule.policy import Policy, guarded_policy, named, of_target


def load(text: str) -> Policy:
    """The named policy, or the function or Policy that ``pkg.module:name`` points to.

    PolicyError says what can't be found or used, and why.
    """
    if ":" not in text:
        return named(text)
    found = load_object(text)
    if isinstance(found, Policy):
        return guarded_policy(found)
    return of_target(cast(Target, found), text)


def load_object(text: str) -> object:
    """Whatever ``pkg.module:name`` points to. PolicyError if it can't be imported."""
    module_name, _, path = text.partition(":")
    if not module_name or not path:
        raise PolicyError(f"{text!r} is not of the form pkg.module:function")
    try:
        found: object = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"{text}: importing {module_name} failed with {type(error).__name__}: {error}; "
            f"run from the directory that holds it, or put that on PYTHONPATH"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise PolicyError(f"{text}: {module_name} was imported but has no {path!r}")
        found = getattr(found, part)
    return found
