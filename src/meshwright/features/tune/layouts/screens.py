"""Screened programs, and costs predicted from their kernels.

To screen a program means to run the compiler's optimisations without generating code.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from meshwright.features.tune.layouts.kernel_costs import (
    KernelCosts,
    same_program,
    unestimated_bytes,
)
from meshwright.features.tune.layouts.kernels import HloKernel
from meshwright.features.tune.layouts.problem import State

_EACH_CHOICE = 2e-3
"""Relative decrease of the cost that each chosen layout has to bring."""


@dataclass(slots=True, eq=False)
class Screens:
    """States (sets of chosen layouts) that were screened, and their predicted costs.

    screen_fn: kernels of a state's program, `None` if it cannot be compiled.
    charge: cost of one byte that instructions without an estimate write, beyond the
        bytes of the state without choices.
    costs: cycles of kernels. kernels: kernels of each screened state's program.
    """

    screen_fn: Callable[[State], list[HloKernel] | None]
    charge: float
    costs: KernelCosts = field(default_factory=KernelCosts)
    kernels: dict[State, list[HloKernel] | None] = field(default_factory=dict)

    def of(self, state: State) -> list[HloKernel] | None:
        """The kernels of a state's program, screened at the first call."""
        if state not in self.kernels:
            self.kernels[state] = self.screen_fn(state)
        return self.kernels[state]

    def cost(self, state: State) -> float:
        """The predicted cost of a state; exact if all its kernels were compiled."""
        return self._charged(state, self.costs.predict)

    def least(self, state: State) -> float:
        """The predicted cost of a state if guesses for its kernels are too high."""
        return self._charged(state, self.costs.least)

    def ranked(self, state: State) -> float:
        """The predicted cost of a state, raised by 0.2 % for each chosen layout."""
        return self.cost(state) * (1 + _EACH_CHOICE * len(state))

    def is_known(self, state: State) -> bool:
        """Whether all kernels of a state were compiled, so that its cost is exact."""
        kernels = self.of(state)
        return kernels is not None and not self.costs.num_unknown(kernels)

    def program(self, state: State) -> frozenset[tuple[str, int]]:
        """A key that is equal for states from which the same program results."""
        return frozenset(same_program(self.of(state) or ()).items())

    def _charged(
        self, state: State, cycles_fn: Callable[[list[HloKernel]], float]
    ) -> float:
        """Cycles of a state's kernels, plus the charge for bytes without an estimate."""
        kernels = self.of(state)
        if kernels is None:
            return math.inf
        more = unestimated_bytes(kernels) - unestimated_bytes(self.of(()) or ())
        return cycles_fn(kernels) + self.charge * max(0.0, more)
