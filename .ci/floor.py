"""Fail if fewer tests or obligations ran than the floor: what vanished unseen is not a pass."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

LEAST_TESTS = 6100
LEAST_ON_DEVICE = 950
LEAST_OBLIGATIONS = 109
LEAST_MUTANTS = 114


def main(tests: str, device: str, proofs: str) -> int:
    (ran, bad, _), (on_device, device_bad, skipped) = _counts(tests), _counts(device)
    last = Path(proofs).read_text(encoding="ascii").strip().splitlines()[-1]
    found = re.search(r"^PROVED: .* (\d+) of \d+ obligations, (\d+) of \d+ mutants", last)
    obligations, mutants = map(int, found.groups()) if found else (0, 0)
    bad += device_bad
    print(f"{ran} passed, and {on_device} on the simulated accelerator; {bad} failed")
    print(f"obligations proved: {obligations}; mutants refuted: {mutants}")
    wanted = (
        (ran, LEAST_TESTS, "tests"),
        (on_device, LEAST_ON_DEVICE, "tests on the simulated accelerator"),
        (obligations, LEAST_OBLIGATIONS, "obligations"),
        (mutants, LEAST_MUTANTS, "mutants"),
    )
    short = [
        f"{got} {word} ran, at least {least} must" for got, least, word in wanted if got < least
    ]
    short += [f"{skipped} tests on the simulated accelerator were skipped"] * bool(skipped)
    for line in short:
        print(line, file=sys.stderr)
    return 1 if short or bad else 0


def _counts(report: str) -> tuple[int, int, int]:
    """How many tests of a report ran, failed and were skipped."""
    names = ("tests", "skipped", "failures", "errors")
    suites = [[int(s.get(n, 0)) for n in names] for s in xml.parse(report).iter("testsuite")]
    tests, skipped, failures, errors = (sum(column) for column in zip(*suites, strict=True))
    return tests - skipped, failures + errors, skipped


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
