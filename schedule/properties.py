"""The names of the properties, once: each is reported under its own, never merged into one."""

from __future__ import annotations

# Of a schedule, in host order.
OWNERSHIP, PROGRESS, IDENTITY, CLOSURE = "ownership", "progress", "identity", "closure"

# Of a program, for every timing: two accesses of one slot (copy and run, run and copy, copy and
# copy), or of one host block (a copy that reads it, and a write of the host); what a wait gets; a
# capture's loose ends, and its sources.
RAW, WAR, WAW, BLOCK = "RAW", "WAR", "WAW", "block"
MEANING, JOINED, PAGEABLE = "meaning", "joined", "pageable"

ORDERING = (RAW, WAR, WAW, BLOCK)
"""What the fences must order."""
