"""``python -m runtime demo``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from runtime import demo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; exit code 0 as proved, 1 not as proved, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m runtime", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    text = "offload a real language model by a refuted and by proved schedules, and compare"
    sub = commands.add_parser("demo", help=text, description=text)
    sub.add_argument("--slots", type=int, default=4, help="K, how many slots (default 4)")
    sub.add_argument("--tokens", type=int, default=16, help="how many tokens (default 16)")
    chosen = parser.parse_args(arguments)
    if chosen.tokens < 1:
        parser.error(f"--tokens must be at least 1, got {chosen.tokens}")
    logging.getLogger("ringproof.runtime").setLevel(logging.ERROR)  # the table says it all
    try:
        return demo.run(chosen.slots, chosen.tokens)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
