"""What the runtime can't do without, checked before anything else is imported."""

import schedule

if getattr(schedule, "RINGPROOF", None) is None:
    found = getattr(schedule, "__file__", None) or list(schedule.__path__)
    raise ImportError(
        f"runtime needs Ringproof's package `schedule`, but another one comes first on the path: "
        f"{found!r}. Remove it, or put Ringproof's directory before it on PYTHONPATH."
    )

try:
    import torch
except ImportError as error:
    raise ImportError(
        "runtime needs PyTorch 2.9 or newer: pip install 'ringproof[runtime]' "
        "(with -c constraints/cpu.txt for the small CPU build)"
    ) from error

TORCH: str = torch.__version__
