"""The pass of a step, such as its backward pass, that an equation belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.jax_private import is_backward, is_recomputed


@dataclass(frozen=True, slots=True)
class EquationPass:
    """The pass that an equation belongs to, as JAX notes it for the equation or a caller.

    The fields are those of `Op`.
    """

    is_backward: bool = False
    is_recomputed: bool = False

    def of(self, eqn: Any) -> EquationPass:
        """The pass of an equation of a jaxpr that is called in this one."""
        return EquationPass(
            self.is_backward or is_backward(eqn),
            self.is_recomputed or is_recomputed(eqn),
        )


OUTSIDE = EquationPass()
"""The pass of an equation that no other pass calls."""
