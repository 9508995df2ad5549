"""What an offload did, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """Counts since the model was wrapped; sizes in bytes.

    policy, modules, slots, device: the schedule and where it runs.
    verified: whether the schedule is proved safe.     guard: whether residency is checked.
    bytes_whole: the model's weights and buffers.      bytes_offloaded: those in host blocks.
    bytes_slots: the device memory of all slots.       bytes_rest: what stays on the device.
    preloaded: copies before the first pass.           copies: those after it.
    bytes_copied: by all copies.                       redundant: copies of what was there.
    runs: how often an offloaded module ran.           misses: how often it was not resident.
    stay: names of parameters that hang in several places and stay on the device.
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
    preloaded: int
    copies: int
    bytes_copied: int
    redundant: int
    runs: int
    misses: int
    stay: tuple[str, ...]

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

    def __str__(self) -> str:
        verified = "verified" if self.verified else "NOT VERIFIED: the text may be wrong"
        guard = "on" if self.guard else "OFF: wrong weights go unnoticed"
        lines = [
            f"schedule   {self.policy}, {self.modules} modules over {self.slots} slots, {verified}",
            f"guard      {guard}; {self.misses} misses in {self.runs} runs",
            f"device     {self.device}: {megabytes(self.bytes_slots)} in slots, "
            f"{megabytes(self.bytes_rest)} beside them; "
            f"{megabytes(self.bytes_saved)} saved of {megabytes(self.bytes_whole)}",
            f"copies     {self.preloaded} to preload, then {self.copies_a_pass:.1f} a pass, "
            f"{self.redundant} redundant; {megabytes(self.bytes_copied)} in all",
        ]
        if self.stay:
            lines.append(f"shared     {', '.join(self.stay)} stay on the device")
        return "\n".join(lines)


def megabytes(size: int) -> str:
    """A size for people, in MB of 10**6 bytes."""
    return f"{size / 1e6:.1f} MB"
