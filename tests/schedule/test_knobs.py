"""Other engines' settings as schedules over all modules."""

from __future__ import annotations

import pytest

from schedule import CostsError, Ring, check, policies
from schedule.knobs import among, grouped, named_settings, vllm_setting, vllm_settings
from schedule.table import Refill
from tests.schedule.models import equal


def test_a_setting_of_vllm() -> None:
    # The report: 28 layers in groups of eight, one of each offloaded, two buffers.
    assert grouped(28, 8, 1) == [7, 15, 23]
    found = vllm_setting(equal(28, size=10), 8, 1, 2)
    assert found.size == (25 + 2) * 10
    schedule = found.schedule
    assert check(schedule).safe
    assert schedule.ring == Ring(28, 27)
    # slot_local at (3, 2): targets 2, 1, 0.
    copied = {at: refills for at, refills in enumerate(schedule.after) if refills}
    assert copied == {7: (Refill(0, 23),), 15: (Refill(1, 15),), 23: (Refill(0, 7),)}
    assert set(schedule.kept()) == {*range(28)} - {7, 23}


@pytest.mark.parametrize(
    ("knobs", "field"),
    [
        ((0, 1, 1), "group size"),
        ((4, 0, 1), "number in group"),
        ((4, 1, 0), "prefetch step"),
        ((4, 5, 1), "number in group: 5, but a group has 4"),
        ((9, 1, 1), "group size: 9, of 5 layers none"),
        ((True, 1, 1), "group size"),
    ],
)
def test_settings_that_make_no_sense(knobs: tuple[int, int, int], field: str) -> None:
    with pytest.raises(CostsError, match=f"^{field}"):
        vllm_setting(equal(5), *knobs)


def test_all_settings_are_safe_and_have_the_memory_that_they_say() -> None:
    costs = equal(7, size=3)
    settings = [*named_settings(costs, captured=False), *vllm_settings(costs)]
    assert all(check(one.schedule).safe for one in settings)
    assert all(one.size == sum(one.schedule.slot_sizes(costs.sizes)) for one in settings)
    families = {one.family for one in settings}
    assert families == {*policies.NAMED, "vLLM"} - {"modular"}
    assert not any(one.schedule.period > 1 for one in named_settings(costs, captured=True))


def test_all_modules_in_place_are_the_schedule_itself() -> None:
    schedule = policies.restart(Ring(5, 2))
    assert among(schedule, range(5), 5) == schedule


def test_of_very_many_rings_some_are_looked_at_and_no_very_long_periods() -> None:
    found = list(named_settings(equal(150, size=3), captured=False))
    slots = sorted({int(one.name.split()[-2]) for one in found})
    assert slots == [*range(1, 151, 2)]
    rotating = [one for one in found if one.family == "rotating"]
    assert max(one.schedule.period for one in rotating) <= 20_000 // 150
    assert {one.family for one in found} == {*policies.NAMED} - {"modular"}
