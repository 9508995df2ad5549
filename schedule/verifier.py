"""Is a schedule safe? A local check on integers, linear in the number of moments; no search.

It walks two periods, which is enough for ever: after one period a slot holds what the period
last wrote into it, or what it held before if the period never writes it, and neither changes
from then on. Where the first period found nothing and left every slot as it met it, the second
would be its repetition, and is not walked.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedule import certificate
from schedule.arithmetic import first_users, next_users
from schedule.errors import ScheduleViolation
from schedule.properties import CLOSURE, IDENTITY, OWNERSHIP, PROGRESS
from schedule.ring import EMPTY
from schedule.table import RUN, Moment, Schedule

PROPERTIES = (OWNERSHIP, PROGRESS, IDENTITY, CLOSURE)


@dataclass(frozen=True, slots=True)
class Violation:
    """The first violation of one property.

    property: one of PROPERTIES.      slot: where it happens.
    needs:    the module whose weights the slot must hold.
    has:      the module whose weights it holds instead, or EMPTY.
    sentence: the same in words.
    trace:    every moment up to the run that reads the slot.
    brought, replaced, run: positions in the trace of the refill that brought the needed module,
              of the one that replaced it (or put another one there in its place), and of the run
              that reads; None where there is none.
    """

    property: str
    slot: int
    needs: int
    has: int
    sentence: str
    trace: tuple[Moment, ...]
    brought: int | None
    replaced: int | None
    run: int

    def __str__(self) -> str:
        return f"{self.property}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Lint:
    """A refill that is not wrong but useless, in some period; ``sentence`` says why. Where it is
    useful in another period (the first pass, say) the schedule may still need it."""

    refill: Moment
    sentence: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What the check found: the first violation of each property, and the thrift lint."""

    schedule: Schedule
    violations: tuple[Violation, ...]
    lints: tuple[Lint, ...]

    @property
    def safe(self) -> bool:
        return not self.violations


@dataclass(frozen=True, slots=True)
class Verified:
    """A schedule that holds ownership, progress, identity and closure; made by ``verify``."""

    schedule: Schedule
    lints: tuple[Lint, ...]

    def certificate(self) -> str:
        """What was verified, as JSON text that ``python -m schedule recheck`` and ``offload`` take
        and check anew: a small program checks it, which needs none of ours."""
        return certificate.text(self)


def verify(schedule: Schedule) -> Verified:
    """The schedule, verified. Raises ScheduleViolation with the trace of each violation."""
    findings = check(schedule)
    if findings.violations:
        raise ScheduleViolation(findings.violations)
    return Verified(schedule, findings.lints)


def refilled(ready: bool, module: int, next_user: int) -> bool:
    """Progress, at a refill. ready: the slot's next user was brought since the last run of
    another module in the slot. The proofs execute this function."""
    return ready or module == next_user


def ran(ready: bool, module: int, next_user: int) -> bool:
    """Progress, at a run of the slot: if the next user is the module that just ran, it was
    brought since the last run of another one; else it is still to be brought."""
    return ready and module == next_user


def check(schedule: Schedule) -> Findings:
    """All findings, without raising."""
    scan = _Scan(schedule)
    moments = list(schedule.walk(1))
    first, second = len(schedule.preload), len(moments)
    scan.go(moments, 0, first)
    preloaded, ready = tuple(scan.holds), tuple(scan.ready)
    scan.written = [False] * schedule.ring.slots
    scan.go(moments, first, second)
    granted, ended = tuple(scan.granted), tuple(scan.holds)
    repeats = ended == preloaded and tuple(scan.ready) == ready
    if not repeats or scan.found or scan.lints:
        moments = list(schedule.walk(2))
        scan.go(moments, second, len(moments))
    # Closure: what a period takes for granted is there at its start and again at its end.
    for content, offset in ((preloaded, 0), (ended, second - first)):
        for position in granted:
            run = moments[position]
            if content[run.slot] != run.module:
                scan.note(CLOSURE, position + offset, run.slot, run.module)
    violations = tuple(
        _explain(schedule, name, *scan.found[name]) for name in PROPERTIES if name in scan.found
    )
    return Findings(schedule, violations, tuple(scan.lints.values()))


class _Scan:
    """The state of one walk. By slot: ``holds`` the module there, ``owner`` the module that the
    next run reads, ``ready`` as in ``refilled``, ``unread`` the refill that no run has read yet,
    ``written`` whether this period refilled it. ``granted``: the runs that read a slot before
    their period wrote it."""

    def __init__(self, schedule: Schedule) -> None:
        slots, modules = schedule.ring.slots, schedule.ring.modules
        first = first_users(schedule.slot_of, slots)
        self.owner = [step if step == EMPTY else step % modules for step in first]
        self.next_owner = [step % modules for step in next_users(schedule.slot_of, first)]
        self.holds = [EMPTY] * slots
        self.ready = [False] * slots
        self.unread: list[Moment | None] = [None] * slots
        self.written = [False] * slots
        self.granted: list[int] = []
        self.found: dict[str, tuple[int, int, int]] = {}  # property: position, slot, needed module
        self.lints: dict[Moment, Lint] = {}

    def go(self, moments: list[Moment], start: int, stop: int) -> None:
        run, refill = self.run, self.refill
        for position in range(start, stop):
            moment = moments[position]
            act = run if moment.half == RUN else refill
            act(position, moment)

    def refill(self, position: int, moment: Moment) -> None:
        _, _, slot, module = moment
        held, owner, unread = self.holds[slot], self.owner[slot], self.unread[slot]
        if held != EMPTY and held == owner and held != module:
            self.note(OWNERSHIP, position, slot, held)
        if owner == EMPTY:
            self.lint(moment, f"no run reads slot {slot}")
        elif held == module:
            self.lint(moment, f"slot {slot} already holds module {module}")
        elif unread is not None:
            self.lint(unread, f"slot {slot} is refilled again before a run reads it")
        self.ready[slot] = refilled(self.ready[slot], module, owner)
        self.holds[slot], self.unread[slot], self.written[slot] = module, moment, True

    def run(self, position: int, moment: Moment) -> None:
        _, step, slot, module = moment
        if self.holds[slot] != module:
            self.note(IDENTITY, position, slot, module)
        if not self.ready[slot]:
            self.note(PROGRESS, position, slot, module)
        if not self.written[slot]:
            self.granted.append(position)
        self.owner[slot] = self.next_owner[step % len(self.next_owner)]
        self.ready[slot] = ran(self.ready[slot], module, self.owner[slot])
        self.unread[slot] = None

    def note(self, name: str, position: int, slot: int, needs: int) -> None:
        self.found.setdefault(name, (position, slot, needs))

    def lint(self, moment: Moment, why: str) -> None:
        key = moment._replace(step=moment.step % len(self.next_owner))
        self.lints.setdefault(key, Lint(key, why))


def _explain(schedule: Schedule, name: str, position: int, slot: int, needs: int) -> Violation:
    """The violation at this position of the walk, with its trace and sentence."""
    moments = list(schedule.walk(3))  # the run that follows a refill of period 2 may be in 3
    run = position
    while moments[run].half != RUN or moments[run].slot != slot:
        run += 1
    trace = tuple(moments[: run + 1])
    refills = [at for at in range(run) if trace[at].half != RUN and trace[at].slot == slot]
    has = trace[refills[-1]].module if refills else EMPTY
    limit = position if name == OWNERSHIP else run
    brought = max((at for at in refills if at < limit and trace[at].module == needs), default=None)
    others = [at for at in refills if trace[at].module != needs and at > (brought or -1)]
    replaced = position if name == OWNERSHIP else min(others, default=None)
    reads = f"module {has}'s weights" if has != EMPTY else "a slot that nothing was copied into"
    modules = schedule.ring.modules
    if name == OWNERSHIP:
        then = "has its own again by a later refill" if has == needs else f"reads {reads}"
        sentence = (
            f"{trace[position].text(modules)} replaces module {needs}, which slot {slot}'s "
            f"next run reads; module {needs} then {then}"
        )
    elif name == PROGRESS:
        found = (
            "finds its own only by an earlier refill's luck" if has == needs else f"reads {reads}"
        )
        sentence = (
            f"{trace[run].text(modules)}, but since the slot's last run of another module "
            f"nothing refilled it with module {needs}; it {found}"
        )
    elif name == IDENTITY:
        sentence = f"{trace[run].text(modules)}, and reads {reads}"
    else:
        when = "the preload" if trace[run].step < len(schedule.slot_of) else "the period's end"
        sentence = (
            f"{trace[run].text(modules)}, before its period refills that slot, "
            f"and {when} leaves {reads} there"
        )
    return Violation(name, slot, needs, has, sentence, trace, brought, replaced, run)
