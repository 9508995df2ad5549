"""Proofs about what ``schedule`` defines: with Z3 for all sizes, by enumeration for small ones."""

from proofs.needs import SOLVER
from proofs.user import PolicyResult, assert_policy_safe, prove_policy

__all__ = ["SOLVER", "PolicyResult", "assert_policy_safe", "prove_policy"]
