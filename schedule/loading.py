"""Find a policy by its name, or by ``pkg.module:function``; and the policies that a module has."""

from __future__ import annotations

import importlib
import inspect
import symtable
from types import ModuleType
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
    found: object = load_module(module_name, text)
    for part in path.split("."):
        if not hasattr(found, part):
            raise PolicyError(f"{text}: {module_name} was imported but has no {path!r}")
        found = getattr(found, part)
    return found


def load_module(name: str, text: str) -> ModuleType:
    """The module of this name. PolicyError, for whoever asked for ``text``, if it can't be
    imported."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise PolicyError(
            f"{text}: importing {name} failed with {type(error).__name__}: {error}; "
            f"run from the directory that holds it, or put that on PYTHONPATH"
        ) from error


def policy_names(module_name: str) -> tuple[str, ...]:
    """``pkg.module:name`` for each policy of a module, in the module's order.

    A policy is a Policy, or what is called with (index, slots, modules), so named, under
    a public name that the module binds itself; a name that it only imports, or that begins with
    an underscore, must be in its ``__all__``. PolicyError if it can't be imported or has none.
    """
    module = load_module(module_name, module_name)
    listed = tuple(getattr(module, "__all__", ()))
    missing = [name for name in listed if not hasattr(module, name)]
    if missing:
        raise PolicyError(f"{module_name}: __all__ names {missing[0]!r}, which it does not have")
    imported = _imported(module)
    own = [name for name in vars(module) if not name.startswith("_") and name not in imported]
    names = [name for name in dict.fromkeys([*own, *listed]) if _is_policy(getattr(module, name))]
    if not names:
        raise PolicyError(
            f"{module_name} has no policy of its own: a Policy, or a function with the parameters "
            f"(index, slots, modules); name others in its __all__, or as {module_name}:function"
        )
    return tuple(f"{module_name}:{name}" for name in names)


def _imported(module: ModuleType) -> set[str]:
    """The names that the module's source binds by imports alone; none without its source."""
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return set()
    names = symtable.symtable(source, module.__name__, "exec").get_symbols()
    return {name.get_name() for name in names if name.is_imported() and not name.is_assigned()}


def _is_policy(value: object) -> bool:
    if isinstance(value, Policy):
        return True
    if isinstance(value, type) or not callable(value):
        return False
    try:
        return list(inspect.signature(value).parameters) == ["index", "slots", "modules"]
    except (TypeError, ValueError):
        return False  # a built-in without a signature
