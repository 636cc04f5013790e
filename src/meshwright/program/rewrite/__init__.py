"""Rewrites of programs: each takes a program and returns another that computes the same."""

from meshwright.program.rewrite.common_subexpressions import merge
from meshwright.program.rewrite.dead_code import prune

__all__ = ["merge", "prune"]
