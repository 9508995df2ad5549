"""What an offload did, in numbers: as text, in a terminal with rich, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from runtime.hooks import OFF, Hooks
from runtime.interpreter import Counts
from runtime.layout import size_of
from runtime.leaves import leaves
from runtime.plantext import sentence
from runtime.select import Selection, tensors_that_stay
from runtime.sizes import counted, megabytes, misses_in

if TYPE_CHECKING:
    from runtime.offloaded import Offloaded

DERIVED = ("passes", "copies_a_pass", "bytes_device", "bytes_saved")
"""What follows from a report's counts, and is in its JSON too."""
FEW = 4
"""So many names are said; of more, how many there are."""
LITTLE = 50_000
"""Smaller tensors beside the slots are not named, in bytes."""


@dataclass(frozen=True, slots=True)
class Report:
    """Counts since the model was wrapped; sizes in bytes.

    policy, modules, slots, device: the schedule and where it runs.
    verified: whether the schedule is proved safe.     guard: whether residency is checked.
    bytes_whole: the model's weights and buffers.      bytes_offloaded: those in host blocks.
    bytes_slots: the device memory of all slots.       bytes_rest: what stays on the device.
    bytes_locked: of the host blocks, page-locked.     bytes_pageable: the others.
    bytes_reserved: by torch's allocator on the device, for whatever purpose; now.
    bytes_free: that the device still has, now. Both None on a CPU, and where nothing says it.
    preloaded: copies before the first pass.           copies: those after it.
    bytes_copied: by all copies.                       redundant: copies of what was there.
    runs: how often an offloaded module ran.           misses: how often it was not resident.
    kept: names of modules that have a slot of their own.
    largest: the largest tensors of those that stay on the device: (name, bytes).
    stay: names of parameters that hang in several places and stay on the device.
    plan: what was planned for the memory that was given, in a sentence; else empty.
    """

    policy: str
    modules: int
    slots: int
    device: str
    verified: bool
    guard: bool
    bytes_whole: int
    bytes_offloaded: int
    bytes_slots: int
    bytes_rest: int
    bytes_locked: int
    bytes_pageable: int
    bytes_reserved: int | None
    bytes_free: int | None
    preloaded: int
    copies: int
    bytes_copied: int
    redundant: int
    runs: int
    misses: int
    kept: tuple[str, ...]
    largest: tuple[tuple[str, int], ...]
    stay: tuple[str, ...]
    plan: str = ""

    @property
    def passes(self) -> float:
        """How many passes the runs amount to."""
        return self.runs / self.modules

    @property
    def copies_a_pass(self) -> float:
        """Copies after the preload for each pass; 0 before the first run."""
        return self.copies / self.passes if self.runs else 0.0

    @property
    def bytes_device(self) -> int:
        """Device memory that the model's weights take."""
        return self.bytes_slots + self.bytes_rest

    @property
    def bytes_saved(self) -> int:
        """Device memory that offloading saves; below zero where the slots outweigh it."""
        return self.bytes_whole - self.bytes_device

    @property
    def unsaved(self) -> str:
        """Why no device memory is saved, and what to do, in a sentence; empty where some is."""
        if self.bytes_saved > 0:
            return ""
        if self.plan:
            return "its memory is enough for the whole model"
        if self.modules == 1:
            return (
                "the only module needs a slot of its own size, however often it runs in a pass; "
                "offload the modules in it, or leave it on the device"
            )
        if self.slots >= self.modules:
            return (
                f"each of the {self.modules} modules has a slot to itself; give fewer slots than "
                f"modules, or leave the model on the device"
            )
        return (
            f"the {self.slots} slots, as large as the largest modules that run from them and "
            f"aligned, take as much as all modules do; give fewer slots, or another policy"
        )

    def as_dict(self) -> dict[str, Any]:
        """Every field by its name, and what follows from them, by the names in DERIVED."""
        return asdict(self) | {name: getattr(self, name) for name in DERIVED}

    def json(self) -> str:
        """``as_dict`` as one JSON object. Its keys are stable: new ones may come, none goes."""
        return json.dumps(self.as_dict(), indent=2)

    def rows(self) -> list[tuple[str, str]]:
        """The report for people: what a line is about, and the line."""
        verified = "verified" if self.verified else "NOT VERIFIED: the text may be wrong"
        guard = "on" if self.guard else "OFF: wrong weights go unnoticed"
        sizes = f"{counted(self.modules, 'module')} over {counted(self.slots, 'slot')}"
        saved = "nothing" if self.unsaved else megabytes(self.bytes_saved)
        device = (
            f"{self.device}: {megabytes(self.bytes_slots)} in slots, "
            f"{megabytes(self.bytes_rest)} beside them; "
            f"{saved} saved of {megabytes(self.bytes_whole)}"
        )
        beside = [
            f"{name} {megabytes(bytes_)}" for name, bytes_ in self.largest if bytes_ >= LITTLE
        ]
        memory = [
            f"{megabytes(size)} {what}"
            for size, what in (
                (self.bytes_reserved, "reserved by torch's allocator"),
                (self.bytes_free, "free"),
            )
            if size is not None
        ]
        copies = (
            f"{self.preloaded} to preload, then {self.copies_a_pass:.1f} a pass, "
            f"{self.redundant} redundant; {megabytes(self.bytes_copied)} in all"
        )
        rows = [
            ("plan", self.plan),
            ("schedule", f"{self.policy}, {sizes}, {verified}"),
            ("guard", f"{guard}; {misses_in(self.misses, self.runs)}"),
            ("device", device),
            ("saved", f"nothing: {self.unsaved}" if self.unsaved else ""),
            ("beside", ", ".join(beside)),
            ("memory", ", ".join(memory)),
            (
                "host",
                f"{megabytes(self.bytes_locked)} locked, {megabytes(self.bytes_pageable)} pageable",
            ),
            ("copies", copies),
            ("kept", _few(self.kept)),
            ("shared", f"{', '.join(self.stay)} stay on the device" if self.stay else ""),
        ]
        return [(about, line) for about, line in rows if line]

    def __str__(self) -> str:
        return "\n".join(f"{about:<10} {line}" for about, line in self.rows())

    def __rich__(self) -> Any:
        """For ``rich.print``: what goes wrong stands out."""
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for about, line in self.rows():
            bad = about == "schedule" and not self.verified
            bad |= about == "guard" and (not self.guard or self.misses > 0)
            table.add_row(Text(about, style="bold"), Text(line, style="red" if bad else ""))
        return table


def closing(report: Report) -> str:
    """The totals, in one line."""
    return (
        f"closed after {counted(report.runs, 'run')}, {report.passes:.1f} passes: "
        f"{counted(report.misses, 'miss', 'misses')}; "
        f"{report.preloaded + report.copies} copies, {report.redundant} of them redundant, "
        f"{megabytes(report.bytes_copied)} in all"
    )


def _few(words: Sequence[str]) -> str:
    more = len(words) - FEW
    return ", ".join([*words[:FEW], *([f"{more} more"] if more > 0 else [])])


def report_of(offloaded: Offloaded, hooks: Hooks, counts: Counts, preloaded: int) -> Report:
    """The counts of an offload since its model was wrapped. preloaded: the copies of the
    preload, which are among the counts too."""
    selection, schedule = offloaded.selection, offloaded.schedule
    whole = sum(layout.weights for layout in offloaded.arena.layouts)
    rest = tensors_beside(selection)
    locked, pageable = offloaded.placement.bytes_host
    device = offloaded.streams.device
    reserved, free = device_memory(device)
    return Report(
        policy=schedule.policy,
        modules=schedule.ring.modules,
        slots=schedule.ring.slots,
        device=str(device),
        verified=offloaded.verified,
        guard=offloaded.on_miss != OFF,
        bytes_whole=whole + sum(size for _, size in rest),
        bytes_offloaded=whole,
        bytes_slots=offloaded.arena.bytes_slots,
        bytes_rest=sum(size for _, size in rest),
        bytes_locked=locked,
        bytes_pageable=pageable,
        bytes_reserved=reserved,
        bytes_free=free,
        preloaded=preloaded,
        copies=counts.copies - preloaded,
        bytes_copied=counts.bytes_copied,
        redundant=counts.redundant,
        runs=hooks.runs,
        misses=hooks.misses,
        kept=tuple(selection.names[module] for module in schedule.kept()),
        largest=tuple(sorted(rest, key=lambda one: -one[1])[:FEW]),
        stay=selection.stay_names,
        plan="" if offloaded.plan is None else sentence(offloaded.plan),
    )


def tensors_beside(selection: Selection) -> list[tuple[str, int]]:
    """Each tensor that stays on the device, under one of its names, and its bytes."""
    found = {}
    for tensors, key, name in tensors_that_stay(selection):
        found[id(tensors[key])] = name, sum(map(size_of, leaves(tensors[key])))
    return list(found.values())


def device_memory(device: torch.device) -> tuple[int | None, int | None]:
    """The bytes that torch's allocator reserves on the device, and those that are free there.
    None on a CPU, and where the device does not say."""
    if device.type == "cpu":
        return None, None
    free = getattr(torch.get_device_module(device), "mem_get_info", None)
    return (
        _told(lambda: torch.accelerator.memory_stats(device).get("reserved_bytes.all.current")),
        None if free is None else _told(lambda: free(device)[0]),
    )


def _told(ask: Callable[[], int | None]) -> int | None:
    try:
        return ask()
    except (NotImplementedError, RuntimeError):  # an allocator that keeps no numbers
        return None
