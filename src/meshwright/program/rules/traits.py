"""What is computed once, and what each time, of ops that say the same."""

from __future__ import annotations

from meshwright.program.rules.work import ARITHMETIC, TRANSCENDENTAL, WORK

HEAVY = frozenset(
    {
        *(set(WORK) - {*ARITHMETIC, *TRANSCENDENTAL, "pallas_call"}),
        "approx_top_k", "gather", "reduce_window", "scaled_dot", "scatter", "schur",
        "select_and_scatter_add",
    }
)  # fmt: skip
"""Kinds of op that take time of their own, where elementwise ones take their readers'."""

DRAWN = frozenset({"rng_uniform"})
"""Kinds of op that draw from a state which XLA keeps, though JAX notes no effect."""
