"""What proofs can't do without, checked before anything else is imported."""

import schedule

if getattr(schedule, "RINGPROOF", None) is None:
    found = getattr(schedule, "__file__", None) or list(schedule.__path__)
    raise ImportError(
        f"proofs needs Ringproof's package `schedule`, but another one comes first on the path: "
        f"{found!r}. Remove it, or put Ringproof's directory before it on PYTHONPATH."
    )

try:
    import z3
except ImportError as error:
    raise ImportError(
        "proofs needs the solver Z3: pip install 'ringproof[proofs]', or pip install z3-solver"
    ) from error

SOLVER: str = z3.get_version_string()
