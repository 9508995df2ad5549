"""``python -m runtime demo | doctor | bench | profile``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from runtime import bench, demo, doctor, workloads
from runtime.log import log
from schedule.output import printed

MODEL = "a folder, a name in the local cache, or demo"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; exit code 0 as it must be, 1 not so, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m runtime", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_doctor(commands)
    _add_bench(commands)
    _add_profile(commands)
    chosen = parser.parse_args(arguments)
    if getattr(chosen, "tokens", 1) < 1:
        parser.error(f"--tokens must be at least 1, got {chosen.tokens}")
    before = log.level
    log.setLevel(logging.ERROR)  # the tables say it all
    try:
        command: Callable[[argparse.Namespace], int] = chosen.command
        return command(chosen)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        log.setLevel(before)


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "offload a real language model by a refuted and by proved schedules, and compare"
    sub = commands.add_parser("demo", help=text, description=text)
    sub.add_argument("--slots", type=int, default=4, help="K, how many slots (default 4)")
    sub.add_argument("--tokens", type=int, default=16, help="how many tokens (default 16)")
    sub.set_defaults(command=lambda chosen: demo.run(chosen.slots, chosen.tokens))


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "check that this machine does what the runtime takes for granted"
    sub = commands.add_parser("doctor", help=text, description=text)
    _add_common(sub)
    sub.set_defaults(command=lambda chosen: doctor.run(chosen.device, chosen.json))


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "measure a transformers model whole and offloaded, in one run, and compare its tokens"
    sub = commands.add_parser("bench", help=text, description=text)
    sub.add_argument("model", metavar="MODEL", help=MODEL)
    sub.add_argument("--slots", type=int, help="K, how many slots (default 2)")
    text = "instead of slots: how much device memory the weights may take, such as 6GiB"
    sub.add_argument("--memory", metavar="SIZE", help=text)
    text = "the costs for which that is planned, as profile writes them (default: estimated)"
    sub.add_argument("--costs", metavar="FILE", help=text)
    sub.add_argument("--policy", help="a name or pkg.module:function (default: as offload)")
    text = "of so many layers only the last is offloaded (default: every layer is)"
    sub.add_argument("--group-size", type=int, metavar="LAYERS", help=text)
    text = "a name pattern of layers that stay on the device; may be given again"
    sub.add_argument("--keep", action="append", metavar="PATTERN", help=text)
    text = "how much host memory may be page-locked, such as 16GiB; 0 for none (default: all)"
    sub.add_argument("--pin", default=True, metavar="SIZE", help=text)
    text = "copy long refills in pieces of this size, such as 32MiB (default: at one go)"
    sub.add_argument("--chunk", metavar="SIZE", help=text)
    sub.add_argument("--tokens", type=int, default=16, help="how many tokens (default 16)")
    _add_common(sub)
    sub.set_defaults(
        command=lambda chosen: bench.run(
            chosen.model,
            chosen.tokens,
            chosen.device,
            chosen.json,
            {name: getattr(chosen, name) for name in bench.OPTIONS},
        )
    )


def _add_profile(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "measure what a transformers model costs here, for offload(memory=...)"
    sub = commands.add_parser("profile", help=text, description=text)
    sub.add_argument("model", metavar="MODEL", help=MODEL)
    text = "the file that is written (default costs.json)"
    sub.add_argument("--costs", default="costs.json", metavar="FILE", help=text)
    text = "how many tokens the prompt has (default: those of a question)"
    sub.add_argument("--prompt", type=int, metavar="TOKENS", help=text)
    text = "how many are decoded after it, each by a pass (default 64)"
    sub.add_argument("--tokens", type=int, default=64, help=text)
    _add_common(sub)
    sub.set_defaults(
        command=lambda chosen: workloads.run(
            *(chosen.model, chosen.costs, chosen.prompt, chosen.tokens),
            *(chosen.device, chosen.json),
        )
    )


def _add_common(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--device", help="the current accelerator by default, else the CPU")
    sub.add_argument("--json", action="store_true", help="print JSON")


if __name__ == "__main__":
    sys.exit(printed(main))
