"""Times that no schedule can beat, whatever it copies, and when: by module or in parts of one.

What is taken for granted is that a module runs only while all its bytes are in memory, that memory
has room for so many, what a copy is bringing included, and that the link has its bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from schedule.costs import SECOND, Costs, Link, Workload
from schedule.errors import CostsError
from schedule.room import most_beside
from schedule.spoken import size as said

COMPUTE, BYTES, ROOM, WINDOWS = "compute", "bytes", "room", "windows"
MOST_CUTS = 32
"""Every place where the ring is cut gives a bound; the best of so many is taken."""


@dataclass(frozen=True, slots=True)
class Bound:
    """No pass takes less than ``time`` nanoseconds in the steady state; ``argument`` says why."""

    name: str
    time: Fraction
    argument: str


def lower_bounds(costs: Costs, workload: Workload, memory: int) -> tuple[Bound, ...]:
    """The bounds for so many bytes of the modules on the device, the largest first. CostsError if
    they are too few for one of the modules."""
    sizes, link = costs.sizes, costs.link
    if memory < max(sizes):
        raise CostsError(f"memory: {memory} bytes, but a module has {max(sizes)}")
    moved = fewest_bytes(sizes, memory)
    found = [
        Bound(COMPUTE, Fraction(workload.total), "all that is computed, one after the other"),
        Bound(
            BYTES,
            _copied(moved, sizes, link) + (workload.total if link.streams == 0 else 0),
            f"{said(moved)} must move a pass, whatever is replaced by what",
        ),
    ]
    if link.streams:
        time, cut = _windows(sizes, memory, link, workload)
        name = costs.modules[cut].name
        text = f"what does not fit beside a module that runs comes after it; counted from {name}"
        found.append(Bound(WINDOWS, time, text))
        outside = _outside(sizes, memory, link, workload)
        text = f"of what must move, {said(outside)} have no room beside a module that runs"
        found.append(Bound(ROOM, _between_runs(outside, link, workload), text))
    return tuple(sorted(found, key=lambda bound: bound.time, reverse=True))


def lower_bound(costs: Costs, workload: Workload, memory: int) -> Fraction:
    """The largest of them, in nanoseconds."""
    return lower_bounds(costs, workload, memory)[0].time


def fewest_bytes(sizes: Sequence[int], memory: int) -> Fraction:
    """How many bytes must move a pass, on average over many.

    Let y_i be the bytes of module i that stay from one run of it to its next, on average. While
    module j runs, all of it is in memory, and what stays of every other one: so the sum of the
    other y_i is at most memory - s_j, for each j. The largest sum Y of all y_i under that has
    y_j >= Y - memory + s_j: with d = memory - Y it is the least d with
    sum max(0, s_j - d) + d <= memory, and what moves is the sum of min(s_j, d). For equal modules
    that is what Belady's replacement moves in a cyclic order, N (N - K) / (N - 1) modules.
    """
    if sum(sizes) <= memory:
        return Fraction(0)
    free = _free(sizes, memory)
    return sum((min(Fraction(one), free) for one in sizes), Fraction(0))


def _free(sizes: Sequence[int], memory: int) -> Fraction:
    """d = memory - Y, if as much stays as can."""
    if sum(sizes) <= memory:
        return Fraction(memory - sum(sizes))
    # Between two sizes the sum is linear in d.
    for at, size in enumerate(ordered := sorted(sizes)):
        larger = ordered[at:]
        if sum(larger) - len(larger) * size + size <= memory:
            # (sum - n d) + d = memory, over the n modules that are larger than d.
            return Fraction(sum(larger) - memory, len(larger) - 1)
    raise AssertionError("the largest module fits")


def _outside(sizes: Sequence[int], memory: int, link: Link, workload: Workload) -> Fraction:
    """Bytes that do not stay in memory, and are not copied while modules run, at least."""
    rate = Fraction(link.bandwidth * link.streams, SECOND)
    caps = [run * rate for run in workload.compute]
    return max(Fraction(0), sum(sizes) - most_beside(sizes, caps, memory, _free(sizes, memory)))


def _between_runs(outside: Fraction, link: Link, workload: Workload) -> Fraction:
    """The runs, and between them so many bytes, or what is computed there."""
    copied = outside * SECOND / (link.bandwidth * link.streams)
    return sum(workload.compute) + max(Fraction(sum(workload.between)), copied)


def _copied(moved: Fraction, sizes: Sequence[int], link: Link) -> Fraction:
    """Nanoseconds of copying so many bytes: over all streams, each copy with its latency. A copy
    brings no more of a module than it has, so there are no fewer than those of the largest."""
    copies, rest = Fraction(0), moved
    for size in sorted(sizes, reverse=True):
        brought = min(rest, Fraction(size))
        copies += brought / size
        rest -= brought
    return (moved * SECOND / link.bandwidth + copies * link.latency) / max(1, link.streams)


def _windows(
    sizes: Sequence[int], memory: int, link: Link, workload: Workload
) -> tuple[Fraction, int]:
    """When module i ends, memory has room for ``memory - s_i`` bytes of those that run next. The
    others of the modules i+1 .. j are copied between that end and the run of j. A pass is cut into
    such stretches, from an end to a run, and the runs between them: the longest sum over all cuts
    is a bound. Returned with where the ring is cut."""
    modules = len(sizes)
    best, where = Fraction(0), 0
    step = -(-modules // MOST_CUTS)
    for cut in range(0, modules, step):
        time = _from(cut, sizes, memory, link, workload)
        if time > best:
            best, where = time, cut
    return best, where


def _from(cut: int, sizes: Sequence[int], memory: int, link: Link, workload: Workload) -> Fraction:
    """The longest way from the end of one run to the end of the same module's next."""
    modules = len(sizes)
    longest = [0] * (modules + 1)  # in nanoseconds, parts dropped: no more than it is
    for start in range(modules):
        for end, time in _stretches(
            (cut + start) % modules, modules - start, sizes, memory, link, workload
        ):
            longest[start + end] = max(longest[start + end], longest[start] + time)
    return Fraction(longest[modules])


def _stretches(
    first: int, most: int, sizes: Sequence[int], memory: int, link: Link, workload: Workload
) -> Iterator[tuple[int, int]]:
    """From the end of this module's run to the end of that of each of the next: how many modules
    on, and the least time."""
    modules = len(sizes)
    run, between = workload.compute, workload.between
    wanted, busy = sizes[first] - memory, 0
    rate = link.bandwidth * link.streams
    for on in range(1, most + 1):
        at = (first + on) % modules
        busy += between[at] + (between[modules] if at == 0 else 0)
        wanted += sizes[at] if at != first else 0
        copied = link.latency + wanted * SECOND // rate if wanted > 0 else 0
        yield on, max(busy, copied) + run[at]
        busy += run[at]
