"""Are a trace's operations the program's, boundary for boundary, as the hooks issue them?

Modules may arrive in any order, passes may be cut short, and modules may run inside others' runs.
What each boundary issues is fixed, though; and so is what may follow what:

- a module's refills before it come right before its run, but for its reload;
- a reload is followed by the run that missed, or by the wait of a module that resumes, or reloads
  are followed by a capture, or by a replay that needs them
  (a run that was refused just then, because its parameters were replaced, does not fit);
- a boundary after a module is only for one that runs; and after it each module inside whose run it
  ran resumes: it waits for its slot's copy again, or is not running any more: it was abandoned;
- what a module wrote is kept only if the module may be running;
- while a graph is captured boundaries issue what it takes of theirs, and a replay stands for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from schedule.captures import Captures
from schedule.graphs import CAPTURE, REPLAY
from schedule.guard import innermost
from schedule.operations import Copy, Issued, Listing, Run
from schedule.program import RELOAD, RESUME, WRITE, lower
from schedule.table import AFTER, BEFORE, ENTER, LEAVE, PRELOAD, RUN, Boundary
from schedule.tasks import EARLIER
from schedule.trace import Trace, place

FOR_GRAPHS = (RELOAD, CAPTURE, REPLAY)
PROGRAM = "program"
"""The property of a trace that it is its schedule's program."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first operation that does not fit by one property.

    at:       its position in the trace, or the number of operations: the trace's end; EARLIER for
              a graph that was captured before.
    property: PROGRAM; the machine's ownership or identity; or one of the ordering's.
    why:      what is wrong with it.        allowed: what would have been right there.
    """

    at: int
    property: str
    why: str
    allowed: str


def conform(trace: Trace) -> tuple[Misfit | None, int, int]:
    """The first operation that the program does not have there, if any. Up to there: how many
    modules began whose boundary after them never came: they were abandoned, or go on; and how many
    passes began without their enter, as where a model's modules are called without the model."""
    follower = _Follower(trace)
    return follower.follow(), follower.begun - follower.ended, follower.unentered


class _Follower:
    """Follows a trace boundary by boundary.

    arrived:  the step whose refills before it came last, until it runs.
    reloaded: the step whose reload came last, until it runs or resumes.
    loaded:   the steps whose reloads came one after the other, for a graph.
    running:  the steps that began and have a boundary after them, the innermost last.
    silent:   those that began and have none: they may be running since.
    may:      the steps that may resume now, since what ran inside their runs may just have ended;
              as long as there are silent ones, all may.
    owed:     those of them that must, or were abandoned.
    begun, ended: how many steps with a boundary after them began, and came to it.
    last:     the module that ran last outside of others' runs.
    entered:  whether an enter came since.      unentered: how many passes began without one.
    captures: the trace's graphs.               before: what was so when a capture began.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.parts = {
            listing[0].boundary: listing
            for part in lower(trace.schedule, trace.streams).parts().values()
            for listing in part
            if listing
        }
        self.holds = list(trace.holds)
        self.running: list[int] = []
        self.silent: set[int] = set()
        self.may: set[int] = set()
        self.owed: set[int] = set()
        self.begun = self.ended = self.unentered = 0
        self.last, self.entered = trace.schedule.ring.modules, False
        self.arrived: int | None = None
        self.reloaded: int | None = None
        self.loaded: list[int] = []
        self.captures = Captures(trace.schedule.slot_of, trace.streams)
        self.before = (list(self.holds), self.last, self.entered, self.unentered)
        for step in trace.running:
            self.begin(step)

    def follow(self) -> Misfit | None:
        for graph in self.trace.graphs:
            alone = replace(self.trace, issued=[*self.captures.whole(graph)], graphs=(), running=())
            follower = _Follower(alone)
            misfit = follower.follow_issued()
            if misfit is not None:
                return replace(misfit, at=EARLIER, why=f"in graph {graph.name}: {misfit.why}")
            self.captures.complete |= follower.captures.complete
        return self.follow_issued()

    def follow_issued(self) -> Misfit | None:
        issued, at = self.trace.issued, 0
        while at < len(issued):
            boundary = issued[at].boundary
            self.forget_unless_it_resumes(boundary)
            wrong = self.refuse(boundary, at)
            if wrong:
                return Misfit(at, PROGRAM, *wrong)
            wanted = self.wanted(boundary, at)
            for offset, one in enumerate(wanted, start=at):
                if offset == len(issued) or issued[offset] != one:
                    why = f"the operations {self.words(boundary)} are others, or are cut short"
                    return Misfit(offset, PROGRAM, why, self.shown(one))
                if isinstance(one.operation, Copy):
                    self.holds[one.operation.slot] = one.operation.module
            at += len(wanted)
            self.take(boundary, wanted)
        if self.captures.graph is not None:
            name = self.captures.graph.name
            return Misfit(at, PROGRAM, f"the capture of graph {name} is open", "its end")
        for step in (*self.loaded, self.reloaded):
            if step is not None:
                return Misfit(at, PROGRAM, *self.not_read(step))
        return None

    def wanted(self, boundary: Boundary, at: int) -> Listing:
        """What the boundary issues here."""
        if boundary.half in (CAPTURE, REPLAY):
            return self.captures.wanted(boundary.half, self.trace.issued[at:])
        return self.captures.issued(self.parts.get(boundary, ()))

    # ---- what may come

    def refuse(self, boundary: Boundary, at: int) -> tuple[str, str] | None:
        """Why this boundary may not come here, and what may."""
        half, step = boundary
        if half not in FOR_GRAPHS or self.captures.graph is not None:
            if self.loaded:
                return self.not_read(self.loaded[0])
            if self.reloaded is not None and (half not in (RUN, RESUME) or step != self.reloaded):
                return self.not_read(self.reloaded)
        refused = self.captures.refuse(half, self.trace.issued[at:])
        if refused or half == CAPTURE:
            return refused
        if half == REPLAY:
            needs = self.captures.needs(self.trace.issued[at:])
            return next((self.not_read(one) for one in self.for_graph() if one not in needs), None)
        if not self.wanted(boundary, at):
            return f"the program has no operations {self.words(boundary)}", "another boundary's"
        began = step in self.running or step in self.silent
        if half == PRELOAD and at > 0:
            return "the preload comes before all else", "any other boundary"
        if half == RUN and self.arrived != step and self.has(BEFORE, step):
            return "the refills before it are missing", self.first(Boundary(BEFORE, step))
        if half == AFTER and step not in self.running:
            return f"{self.name(step)} is not running", "a boundary of a module that runs"
        if half == RESUME and step not in self.may and not self.silent:
            return f"nothing ran inside the run of {self.name(step)}", "another boundary"
        if half in (RESUME, WRITE) and not began:
            return f"{self.name(step)} is not running", self.first(Boundary(RUN, step))
        return None

    def not_read(self, step: int) -> tuple[str, str]:
        halves = [Boundary(half, step) for half in (RESUME, RUN) if self.has(half, step)]
        last = self.captures.issued(self.parts[halves[0]])
        return f"{self.name(step)} was reloaded, but then does not run", self.shown(last[0], False)

    def forget_unless_it_resumes(self, boundary: Boundary) -> None:
        """What does not resume now was abandoned."""
        if boundary.half not in (RELOAD, RESUME):
            for step in self.owed.intersection(self.running):  # of several runs of it, the last
                del self.running[len(self.running) - 1 - self.running[::-1].index(step)]
            self.silent -= self.owed
            self.owed.clear()

    # ---- what it leads to

    def take(self, boundary: Boundary, issued: Listing) -> None:
        """What is so after the boundary, which issued this."""
        half, step = boundary
        if half in FOR_GRAPHS:
            self.loaded = self.for_graph() if half == RELOAD else []
        if half == CAPTURE:
            return self.capture_begins_or_ends(issued)
        if half == REPLAY:
            return self.replayed(self.captures.replayed(issued))
        self.captures.take(self.parts[boundary])
        self.reloaded = step if half == RELOAD and self.has(RESUME, step) else None
        if half == BEFORE:
            self.arrived = step
        elif half == ENTER:
            self.entered, self.arrived = True, None
        elif half != RELOAD:
            self.arrived = None
        if half == RESUME or (half == RELOAD and not self.has(RESUME, step)):
            self.may.discard(step)
            self.owed.discard(step)
        elif half == RUN:
            self.pass_begins(step % self.trace.schedule.ring.modules)
            self.may = {*self.running, *self.silent}
            self.begin(step)
        elif half == AFTER:
            self.ended += 1
            while self.running.pop() != step:  # those above it were abandoned
                pass
            self.owe()
        elif half == LEAVE:
            self.owe()

    def capture_begins_or_ends(self, issued: Listing) -> None:
        """What was running was abandoned. At the end nothing was done."""
        now = (list(self.holds), self.last, self.entered, self.unentered)
        if self.captures.graph is not None:
            self.holds, self.last, self.entered, self.unentered = self.before
        self.before = now
        self.captures.begin_or_end(issued)
        self.nothing_runs()

    def replayed(self, body: Listing) -> None:
        """All of a graph's boundaries came."""
        self.nothing_runs()
        for operation, (half, _) in body:
            self.entered = self.entered or half == ENTER
            if isinstance(operation, Run):
                self.pass_begins(operation.module)
            elif isinstance(operation, Copy):
                self.holds[operation.slot] = operation.module

    def nothing_runs(self) -> None:
        self.running.clear()
        for steps in (self.silent, self.may, self.owed):
            steps.clear()
        self.arrived = self.reloaded = None

    def for_graph(self) -> list[int]:
        """The steps that were reloaded and did not run."""
        return self.loaded + ([] if self.reloaded is None else [self.reloaded])

    def pass_begins(self, module: int) -> None:
        """Count a pass that began without its enter, if modules that follow each other tell."""
        if self.running or self.silent or not any(half == ENTER for half, _ in self.parts):
            return
        if module <= self.last:
            self.unentered += not self.entered
            self.entered = False
        self.last = module

    def begin(self, step: int) -> None:
        if self.has(AFTER, step):
            self.running.append(step)
            self.begun += 1
        else:
            self.silent.add(step)

    def owe(self) -> None:
        """Who resumes, if it is still running. Where there is nothing to wait for, only what lost
        its slot has anything to issue."""
        self.may = {*self.running, *self.silent}
        self.owed = {
            step for step in self.innermost() if self.has(RESUME, step) or self.taken(step)
        }

    def taken(self, step: int) -> bool:
        """Whether the step's slot holds another module by now."""
        schedule = self.trace.schedule
        return self.holds[schedule.slot_of[step]] != step % schedule.ring.modules

    def innermost(self) -> Iterator[int]:
        """Of each module, and from each slot, the run that resumes first. Where a silent one may
        be running too, that can't be told, and none is owed anything."""
        uses = Counter(use for step in self.silent for use in self.uses(step))
        slot_of, modules = self.trace.schedule.slot_of, self.trace.schedule.ring.modules
        for at in innermost([(step % modules, slot_of[step]) for step in self.running]):
            if not any(uses[use] for use in self.uses(self.running[at])):
                yield self.running[at]
        taken = {use for step in self.running for use in self.uses(step)}
        for step in self.silent:
            if not taken & self.uses(step) and all(uses[use] == 1 for use in self.uses(step)):
                yield step

    def uses(self, step: int) -> set[tuple[str, int]]:
        schedule = self.trace.schedule
        return {("module", step % schedule.ring.modules), ("slot", schedule.slot_of[step])}

    # ---- in words

    def has(self, half: str, step: int) -> bool:
        return bool(self.captures.issued(self.parts.get(Boundary(half, step), ())))

    def name(self, step: int) -> str:
        return f"module {step % self.trace.schedule.ring.modules}"

    def words(self, boundary: Boundary) -> str:
        where = place(boundary, self.trace.schedule)
        return where if boundary.half in (ENTER, LEAVE, BEFORE, AFTER) else f"of [{where}]"

    def first(self, boundary: Boundary) -> str:
        return self.shown(self.captures.issued(self.parts[boundary])[0])

    def shown(self, issued: Issued, where: bool = True) -> str:
        """An operation, with its boundary."""
        text = f"[{issued.operation}]"
        return f"{text} ({place(issued.boundary, self.trace.schedule)})" if where else text
