"""What was verified, as a document that a short program believes without us: see ``recheck``."""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedule.errors import CertificateError, ProgramError
from schedule.fields import once
from schedule.recheck import CLAIMS, Refuted, digest, recheck
from schedule.ring import Ring
from schedule.table import PRELOAD, RUN, TABLES, Schedule

if TYPE_CHECKING:
    from schedule.verifier import Verified

SCHEMA = 1
MOST_BYTES = 1 << 26


def document(verified: Verified) -> dict[str, Any]:
    """The certificate of a verified schedule as JSON data."""
    schedule = verified.schedule
    found = {
        "certificate": SCHEMA,
        "ringproof": _version(),
        "policy": schedule.policy,
        "modules": schedule.ring.modules,
        "slots": schedule.ring.slots,
        "claims": list(CLAIMS),
        "slot_of": list(schedule.slot_of),
        "preload": [list(refill) for refill in schedule.preload],
        **{
            name: [[list(refill) for refill in refills] for refills in getattr(schedule, name)]
            for name in TABLES
        },
        "brought": _brought(schedule),
    }
    return found | {"sha256": digest(found)}


def text(verified: Verified) -> str:
    """The same as text, a field a line."""
    rows = [
        f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in document(verified).items()
    ]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def read(certificate: str | os.PathLike[str] | dict[str, Any]) -> Schedule:
    """The schedule of a certificate, a file or its data, checked anew. CertificateError, with the
    first statement that fails, for one that is not true, and for what is none."""
    data = certificate if isinstance(certificate, dict) else load(certificate)
    try:
        recheck(data)
    except Refuted as error:
        raise CertificateError(f"the certificate is refused; not true is: {error}") from None
    tables = {name: data[name] for name in TABLES}
    ring = Ring(data["modules"], data["slots"])
    return Schedule(
        ring, data["policy"], slot_of=data["slot_of"], preload=data["preload"], **tables
    )


def load(path: str | os.PathLike[str]) -> Any:
    """The data in a certificate's file, not yet believed. CertificateError if there is none."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise CertificateError(f"{path} can't be read: {why}; name a certificate's file") from None
    if len(content) > MOST_BYTES:
        raise CertificateError(f"{path} has more than {MOST_BYTES:,} bytes: it is no certificate")
    try:
        return json.loads(content.decode("ascii"), object_pairs_hook=once)
    except ProgramError as error:
        raise CertificateError(f"{path}: {error}; the file is no certificate") from None
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"{path} is no certificate: {error}") from None


def _brought(schedule: Schedule) -> list[list[Any]]:
    """By step, the boundary that brought its module in every period but the first."""
    steps = len(schedule.slot_of)
    by: dict[int, list[Any]] = {}
    found: list[list[Any]] = [[] for _ in range(steps)]
    for moment in schedule.walk(2):
        if moment.half == RUN:
            found[moment.step % steps] = by[moment.slot]
        elif moment.half == PRELOAD:
            by[moment.slot] = [PRELOAD, 0]
        else:
            by[moment.slot] = [moment.half, moment.step % steps]
    return found


def _version() -> str:
    try:
        return version("ringproof")
    except PackageNotFoundError:
        return "unknown"
