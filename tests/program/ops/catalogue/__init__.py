"""Small programs that reach every primitive with a rule, in every form of its params."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Example:
    """A function of arrays and the (NumPy) arguments to call it with.

    since: the first release of JAX that can run it.
    """

    name: str
    fn: Callable
    args: tuple
    since: tuple[int, int] = (0, 10)


OPS_SINCE = {
    **dict.fromkeys(("log2", "mulhi", "one_minus_square", "stack", "unstack"), (0, 11)),
    **dict.fromkeys(("rng_bit_generator", "scaled_matmul_wrapper"), (0, 11)),
    "polynomial": (0, 12),
}
"""The first release of JAX in which an example reaches these ops. All others are reached
in the oldest one."""
