"""Why the compute stream waits for a copy, in a sentence: what would have to be otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from schedule.costs import Times
from schedule.operations import COMPUTE, Copy, Run
from schedule.table import AFTER, BEFORE, ENTER, Boundary
from schedule.timing import Span

MOST_NAMES = 3
"""More modules are counted, not listed."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A copy that was issued.

    clock: of compute then.      runs: the modules that ran since its slot was free, the one that
           freed it first; none if nothing ever ran from it.
    anew:  whether the slot held the module already.
    behind: the copy that it had to wait for.
    """

    operation: Copy
    span: Span
    clock: int
    runs: tuple[int, ...]
    anew: bool
    behind: Queued | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Delay:
    """The compute stream waits for a copy. until: the run that needs it, the join at the end of a
    captured pass, or the copy itself, on a device that copies on the compute stream.
    window: of compute since it was issued, in which it could have been done."""

    copy: Queued
    until: Span
    time: int
    window: int

    @property
    def module(self) -> int:
        return self.copy.operation.module


@dataclass(frozen=True, slots=True)
class Words:
    """What sentences are made of: the times, in words too, and the names of the modules."""

    times: Times
    captured: bool
    names: Sequence[str]
    said: Callable[[int], str]

    @property
    def modules(self) -> int:
        return len(self.times.run)

    @property
    def compute(self) -> int:
        """What is computed in a pass."""
        return sum(self.times.run) + sum(self.times.between)

    def module(self, number: int) -> str:
        return self.names[number] if self.names else f"module {number % self.modules}"

    def several(self, queue: Sequence[Queued]) -> str:
        """Their modules, in the order of issue."""
        modules = dict.fromkeys(one.operation.module for one in reversed(queue))
        if len(modules) > MOST_NAMES:
            return f"those of {len(modules)} modules"
        *first, last = map(self.module, modules)
        return f"those of {', '.join(first)} and {last}" if first else f"that of {last}"

    def boundary(self, boundary: Boundary) -> str:
        half, step = boundary
        if half in (BEFORE, AFTER):
            return f"{half} {self.module(step % self.modules)}"
        return "as a pass begins" if half == ENTER else "as a pass ends"

    def window(self, module: int, distance: int) -> int:
        """Compute between a slot's release, so many modules before this one, and this one: what
        may hide its copy. In captured passes one that is issued then lands before the end."""
        run, between = self.times.run, self.times.between
        first = module - distance + 1  # the first module that runs in the window
        inside = sum(run[max(first, 0) : module]) + sum(between[max(first, 0) : module + 1])
        if first > 0:
            return inside
        before = sum(run[first:] if first else ()) + sum(between[first - 1 :])
        return before if self.captured else inside + before

    def early(self, module: int) -> bool:
        """Whether what is computed in a pass before this module hides its copy."""
        before = sum(self.times.run[:module]) + sum(self.times.between[: module + 1])
        return before >= self.times.copy[module]

    def remedy(self, module: int) -> str:
        """What would hide its copy if there were no other."""
        for distance in range(1, self.modules):
            if self.window(module, distance) >= self.times.copy[module]:
                if distance == 1:
                    return f"issued after {self.module(module - 1)}, it would be in time"
                return f"{distance} slots in turn would"
        if self.captured and self.early(module):
            return "a slot that is free as a pass begins would"
        return "no slot is free early enough, only fewer bytes would"


@dataclass(frozen=True, slots=True)
class Load:
    """What a pass's time is made of: it all, what is computed, what the stream copies."""

    time: Fraction
    compute: int
    copies: Fraction

    @property
    def bytes_matter(self) -> bool:
        """Whether most of the time that is waited would remain if nothing had to wait but for the
        stream itself."""
        return 2 * (self.copies - self.compute) > self.time - self.compute

    def __str__(self) -> str:
        share = self.copies / self.time
        return "all the time" if share == 1 else f"{int(share * 100)}% of the time"


def reason(delay: Delay, load: Load, words: Words) -> str:
    """Why it waits. load: of the stream that copies."""
    copy = delay.copy
    if copy.operation.stream == COMPUTE:
        return "copies take the compute stream's own time here: only fewer bytes would save some"
    if copy.anew:
        return "it is copied although its slot holds it: without that copy it would not wait"
    queue = list(_queue(copy))
    if load.bytes_matter:
        ahead = [one for one in queue if one.span.end > copy.span.ready]
        waits = f"its copy waits behind {words.several(ahead)}: " if ahead else ""
        return f"{waits}the copy stream is busy {load}, fewer bytes would"
    # What it would wait if it had not had to wait for others itself.
    alone = copy.span.end - copy.span.begin - (delay.until.ready - copy.span.ready)
    behind = queue if 2 * alone < delay.time else []
    if not isinstance(delay.until.issued.operation, Run):
        return _joined(delay, behind, words)
    return _behind(behind, words) if behind else _late(delay, words)


def _queue(copy: Queued) -> Iterator[Queued]:
    """The copies that it waits behind, the nearest first."""
    behind = copy.behind
    while behind is not None:
        yield behind
        behind = behind.behind


def _behind(queue: Sequence[Queued], words: Words) -> str:
    first = queue[-1].span
    which = "which" if len(queue) == 1 else "the first of which"
    issued = words.boundary(first.issued.boundary)
    since = f", {which} could begin only {issued}" if first.begin == first.ready else ""
    return (
        f"its copy waits behind {words.several(queue)}{since}: a slot that is free earlier, or "
        f"fewer bytes, would"
    )


def _joined(delay: Delay, queue: Sequence[Queued], words: Words) -> str:
    issued = words.boundary(delay.copy.span.issued.boundary)
    end = "the wrap joins before the end of a captured pass"
    if queue:
        behind = f"its copy, issued {issued}, waits behind {words.several(queue)}"
        return f"{end}, and {behind}: a slot that is free earlier, or fewer bytes, would"
    left = f"only {words.said(delay.window)} of compute hides" if delay.window else "nothing hides"
    copy = words.said(words.times.copy[delay.module])
    if words.early(delay.module):
        remedy = "issued as the next pass begins, it would be in time"
    else:
        remedy = words.remedy(delay.module)
    return f"{end}: {left} its copy, {copy}, issued {issued}: {remedy}"


def _late(delay: Delay, words: Words) -> str:
    """Its slot is free too late, or was free long before the copy is issued."""
    module, runs = delay.module, delay.copy.runs
    name, copy = words.module(module), words.said(words.times.copy[module])
    window, remedy = words.said(delay.window), words.remedy(module)
    issued = words.boundary(delay.copy.span.issued.boundary)
    assert runs, "a slot is refilled after a run, in the steady state"
    user, distance = words.module(runs[0]), (module - runs[0]) % words.modules
    if len(runs) > 1:
        if words.window(module, distance) >= words.times.copy[module]:
            remedy = "issued then, it would be in time"
        free = f"though its slot is free after {user}"
        return f"its copy, {copy}, is issued only {issued}, {free}: {remedy}"
    if distance == 1:
        hides = f"only {window} between them hides" if delay.window else "nothing hides"
        both = f"{user} and {name} run back to back from one slot"
        return f"{both}, {hides} the copy of {name}, {copy}: {remedy}"
    hides = f"only {window} of compute after that hides its copy, {copy}"
    return f"its slot is free only after {user}, {hides}: {remedy}"
