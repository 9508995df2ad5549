"""Measurements, run from the repository: ``python -m benchmarks``. No test is timed."""
