"""The benchmarks count what they say; how long it takes is for people to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from proofs.claims import claims
from proofs.obligation import System, discharge
from schedule import Ring, check, policies
from schedule.program import lower


def test_verify_counts_every_ring_of_every_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["verify", "--to", "3", "--local", "4", "--json", str(file)]) == 0
    every, local = json.loads(file.read_text(encoding="ascii"))["lines"]
    rings = [
        (policy, Ring(n, k))
        for policy in policies.NAMED.values()
        for n in range(1, 4)
        for k in range(policy.least_slots, 4)
    ]
    assert every["rings"] == len(rings) == 8 * 9 + 2 * 6
    listings = [lower(policy(ring)).listing(2) for policy, ring in rings]
    assert every["operations"] == sum(map(len, listings)) > 1000
    assert every["violated"] == 1  # modular at (3, 2)
    assert (local["rings"], local["violated"]) == (16, 0)
    balanced = [policies.balanced(Ring(n, k)) for n in range(1, 5) for k in range(1, 5)]
    assert local["operations"] == sum(len(one.slot_of) + one.copies for one in balanced)
    assert all(check(one).safe for one in balanced)
    assert min(every["seconds"], local["seconds"]) > 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "ordering and identity, every policy, all rings to 3x3",
        "building and local check of balanced, all rings to 4x4",
    ]


def test_sizes_below_one_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["verify", "--to", "0"])
    assert error.value.code == 2
    assert "sizes are at least 1" in capsys.readouterr().err


def test_proofs_counts_each_obligation_and_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "figures.json"
    assert main(["proofs", "--only", "4", "--json", str(file)]) == 0
    *obligations, whole = json.loads(file.read_text(encoding="ascii"))["lines"]
    assert [line["what"] for line in obligations] == ["claim 4, closed form", "claim 4, chain"]
    claim = next(claim for claim in claims(System()) if claim.number == 4)
    resources = [discharge(obligation).resources for obligation in claim.obligations]
    assert [line["resources"] for line in obligations] == resources
    assert whole["what"].endswith("PROVED: 1 claims, 2 obligations, 2 of 2 mutants refuted")
    assert whole["resources"] is None
    assert min(line["seconds"] for line in (*obligations, whole)) > 0
    assert len(capsys.readouterr().out.splitlines()) == 3
