"""Fail if fewer tests or obligations ran than the floor: what vanished unseen is not a pass."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

LEAST_TESTS = 1700
LEAST_OBLIGATIONS = 85
LEAST_MUTANTS = 74


def main(tests: str, proofs: str) -> int:
    suite = xml.parse(tests).getroot().iter("testsuite")
    counts = [
        {k: int(s.get(k, 0)) for k in ("tests", "skipped", "failures", "errors")} for s in suite
    ]
    ran = sum(c["tests"] - c["skipped"] for c in counts)
    bad = sum(c["failures"] + c["errors"] for c in counts)
    last = Path(proofs).read_text(encoding="ascii").strip().splitlines()[-1]
    found = re.search(r"^PROVED: .* (\d+) of \d+ obligations, (\d+) of \d+ mutants", last)
    obligations, mutants = map(int, found.groups()) if found else (0, 0)
    print(f"{ran} passed, {bad} failed")
    print(f"obligations proved: {obligations}; mutants refuted: {mutants}")
    wanted = (
        (ran, LEAST_TESTS, "tests"),
        (obligations, LEAST_OBLIGATIONS, "obligations"),
        (mutants, LEAST_MUTANTS, "mutants"),
    )
    short = [
        f"{got} {word} ran, at least {least} must" for got, least, word in wanted if got < least
    ]
    for line in short:
        print(line, file=sys.stderr)
    return 1 if short or bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
