"""What the strategies and the stateful machine can't do without, checked before all else."""

try:
    import hypothesis
except ImportError as error:
    raise ImportError(
        "proofs.strategies and proofs.stateful need Hypothesis: "
        "pip install 'ringproof[fuzz]', or pip install hypothesis"
    ) from error

HYPOTHESIS: str = hypothesis.__version__
