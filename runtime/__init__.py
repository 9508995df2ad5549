"""Offloaded inference by a verified schedule, with torch stream copies.

with runtime.offload(model, slots=4) as offloaded:
    model.generate(**inputs)
    print(offloaded.report())
"""

from runtime.needs import TORCH

# isort: split
# Only after what it checks.
from runtime.graph import Captured
from runtime.load import load
from runtime.offload import offload
from runtime.offloaded import Offloaded
from runtime.profile import profile
from runtime.report import Report
from runtime.sanitize import sanitize

__all__ = ["TORCH", "Captured", "Offloaded", "Report", "load", "offload", "profile", "sanitize"]
