"""``python -m benchmarks verify | proofs | runtime | plan | device [--json FILE]``."""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import device, plan, plan_simulated, proofs, runtime, verify
from schedule.errors import OffloadError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and print its lines; exit code 1 if one says that something is not as it
    must be, 2 if there is nothing to run on."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    one = commands.add_parser("verify", help="rings checked a second")
    one.add_argument("--to", type=_size, default=64, help="rings to this size, with streams")
    one.add_argument("--local", type=_size, default=128, help="rings to this size, schedules only")
    one.set_defaults(lines=lambda chosen: verify.lines(chosen.to, chosen.local))
    two = commands.add_parser("proofs", help="time and resources of each obligation")
    two.add_argument("--only", type=int, action="append", metavar="CLAIM", help="again for more")
    two.set_defaults(lines=lambda chosen: proofs.lines(chosen.only))
    three = commands.add_parser("runtime", help="hooks and passes beside those of other systems")
    three.add_argument("--tiny", action="store_true", help="small sizes, only to see that it works")
    three.add_argument("--full", action="store_true", help="one model of the size of Qwen3-0.6B")
    three.add_argument("--simulated", action="store_true", help="on the tests' simulated device")
    three.set_defaults(
        lines=lambda chosen: runtime.lines(
            tiny=chosen.tiny, full=chosen.full, simulated=chosen.simulated
        )
    )
    four = commands.add_parser("device", help="everything that needs hardware, in one table")
    four.add_argument("--tiny", action="store_true", help="small sizes, simulated if need be")
    text = f"begin nothing after so many (default {device.SECONDS})"
    four.add_argument("--seconds", type=_seconds, default=device.SECONDS, help=text)
    four.set_defaults(lines=lambda chosen: device.lines(tiny=chosen.tiny, seconds=chosen.seconds))
    five = commands.add_parser("plan", help="plans beside named policies and their lower bounds")
    five.add_argument("--tiny", action="store_true", help="a small grid, only to see that it works")
    text = "predicted beside measured, on the tests' simulated device"
    five.add_argument("--simulated", action="store_true", help=text)
    five.set_defaults(
        lines=lambda chosen: (plan_simulated if chosen.simulated else plan).lines(tiny=chosen.tiny)
    )
    for command in (one, two, three, four, five):
        command.add_argument("--json", type=_file, metavar="FILE", help="write the figures too")
    chosen = parser.parse_args(arguments)
    found: list[dict[str, Any]] = []
    try:
        for line in chosen.lines(chosen):
            print(line, flush=True)
            found.append(line.json())
    except OffloadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:  # what was measured is not lost with what could not be
        if chosen.json and found:
            text = json.dumps({"python": platform.python_version(), "lines": found}, indent=2)
            chosen.json.write_text(text + "\n", encoding="ascii")
    return int(any(line.get("failed") for line in found))


def _size(text: str) -> int:
    """A ring's size. ArgumentTypeError for one that is none."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: sizes are at least 1")
    return int(text)


def _seconds(text: str) -> float:
    """A time budget. ArgumentTypeError for one in which nothing would be measured."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def _file(text: str) -> Path:
    """A file to write. ArgumentTypeError, before minutes are spent, where none can be."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: no file can be written there")
    return path


if __name__ == "__main__":
    sys.exit(main())
