"""Legalization: programs without the ops and dtypes that a target lacks.

In: a `Program`. Out: a program that computes the same, of ops that the target has and
computes as JAX does, also for NaN, infinities and integers at their limits. A rule is a
JAX function that replaces an op; `rewrite.py` traces it. Begin reading at `passes.py`,
which lists the rules of each target.
"""
