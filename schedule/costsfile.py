"""Costs as a JSON file: what ``python -m runtime profile`` writes, and a planner reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from schedule.costs import MOST, Costs, Link, Module, Part, Workload
from schedule.errors import CostsError, ProgramError
from schedule.fields import kind_of, list_of, once, only, text_of

SCHEMA = 1
MOST_BYTES = 1 << 26
UNITS = "bytes, nanoseconds, bytes a second"


def text(costs: Costs) -> str:
    """The file's content, an entry of a list a line."""
    return json.dumps(document(costs), indent=1) + "\n"


def document(costs: Costs) -> dict[str, Any]:
    """Costs as JSON data."""
    return {
        "costs": SCHEMA,
        "units": UNITS,
        "model": costs.model,
        "device": costs.device,
        "torch": costs.torch,
        "link": {
            "bandwidth": costs.link.bandwidth,
            "latency": costs.link.latency,
            "streams": costs.link.streams,
        },
        "resident": costs.resident,
        "modules": [
            {
                "name": module.name,
                "fixed": module.fixed,
                "parts": {part.name: part.size for part in module.parts},
            }
            for module in costs.modules
        ],
        "workloads": [
            {
                "name": one.name,
                "weight": one.weight,
                "compute": list(one.compute),
                "between": list(one.between),
            }
            for one in costs.workloads
        ],
    }


def read(path: str | os.PathLike[str]) -> Costs:
    """The costs in a file. CostsError, with the file and the field, if there are none."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CostsError(
            f"{path} can't be read: {why}; name a file that python -m runtime profile wrote"
        ) from None
    if len(content) > MOST_BYTES:
        raise CostsError(f"{path} has more than {MOST_BYTES:,} bytes: these are no costs")
    try:
        return costs_of(json.loads(content.decode("utf-8"), object_pairs_hook=once))
    except (CostsError, ProgramError) as error:
        raise CostsError(f"{path}: {error}") from None
    except ValueError as error:
        raise CostsError(f"{path} is no JSON: {error}") from None
    except RecursionError:  # from the reader, or while a value is shown
        raise CostsError(f"{path} is nested too deeply: these are no costs") from None


def costs_of(data: Any) -> Costs:
    """The costs that this JSON data is. CostsError, with the field, if it is none."""
    try:
        found = _object("costs", data)
        version, units = found.get("costs"), found.get("units", UNITS)
        if version != SCHEMA or type(version) is not int:
            raise CostsError(f"costs: {kind_of(version)}, where {SCHEMA} is known")
        if units != UNITS:
            raise CostsError(f"units: {kind_of(units)}, where {UNITS!r} are known")
        texts, rest = ("model", "device", "torch"), ("link", "resident", "modules", "workloads")
        only(found, ("costs", *texts, *rest), optional=("units",))
        link = _object("link", found["link"])
        only(link, ("bandwidth", "latency", "streams"), "link.")
        return Costs(
            modules=list_of("modules", found["modules"], _module),
            workloads=list_of("workloads", found["workloads"], _workload),
            link=Link(**{name: _number(f"link.{name}", value) for name, value in link.items()}),
            resident=_number("resident", found["resident"]),
            **{name: text_of(name, found[name]) for name in texts},
        )
    except ProgramError as error:
        raise CostsError(str(error)) from None


def _module(where: str, value: Any) -> Module:
    found = _object(where, value)
    only(found, ("name", "fixed", "parts"), f"{where}.")
    parts = _object(f"{where}.parts", found["parts"])
    return Module(
        text_of(f"{where}.name", found["name"]),
        tuple(
            Part(text_of(f"{where}.parts", name), _number(f"{where}.parts.{name}", size))
            for name, size in parts.items()
        ),
        _number(f"{where}.fixed", found["fixed"]),
    )


def _workload(where: str, value: Any) -> Workload:
    found = _object(where, value)
    only(found, ("name", "compute", "between"), f"{where}.", ("weight",))
    weight = found.get("weight", 1.0)
    if not isinstance(weight, int | float) or isinstance(weight, bool):
        raise CostsError(f"{where}.weight: a number is needed, not {kind_of(weight)}")
    return Workload(
        text_of(f"{where}.name", found["name"]),
        list_of(f"{where}.compute", found["compute"], _number),
        list_of(f"{where}.between", found["between"], _number),
        weight,
    )


def _number(name: str, value: Any) -> int:
    """A whole number from 0 on; parts of a nanosecond or a byte are dropped."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise CostsError(f"{name}: a number from 0 on is needed, not {kind_of(value)}")
    return int(value)


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CostsError(f"{name}: an object is needed, not {kind_of(value)}")
    return value
