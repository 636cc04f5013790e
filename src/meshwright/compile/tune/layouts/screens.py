"""Screened programs: their kernels before code is generated, and their predicted costs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from meshwright.compile.tune.layouts.kernel_costs import (
    Example,
    KernelCosts,
    async_bytes,
    same_program,
)
from meshwright.compile.tune.layouts.kernels import HloKernel
from meshwright.compile.tune.layouts.problem import State

_EACH_CHOICE = 2e-3
"""Relative gain by which one more choice has to pay."""


@dataclass(slots=True, eq=False)
class Screens:
    """The states that were screened, and their costs as sums over their kernels.

    screen_fn: kernels of a state, `None` if it cannot be compiled.
    charge: cost of one byte that instructions without an estimate write, beyond the
        bytes of the state without choices.
    """

    screen_fn: Callable[[State], list[HloKernel] | None]
    charge: float
    costs: KernelCosts = field(default_factory=KernelCosts)
    kernels: dict[State, list[HloKernel] | None] = field(default_factory=dict)

    def of(self, state: State) -> list[HloKernel] | None:
        """The kernels of a state, which is screened if it was not yet."""
        if state not in self.kernels:
            self.kernels[state] = self.screen_fn(state)
        return self.kernels[state]

    def learn(self, examples: Iterable[Example]) -> None:
        """Add kernels that were compiled."""
        self.costs.learn(examples)

    def cost(self, state: State) -> float:
        """The likely cost, exact if all kernels are known."""
        kernels = self.of(state)
        if kernels is None:
            return math.inf
        return self.costs.predict(kernels) + self._charged(kernels)

    def least(self, state: State) -> float:
        """An optimistic cost, with unknown kernels as cheap as is likely."""
        kernels = self.of(state)
        if kernels is None:
            return math.inf
        return self.costs.least(kernels) + self._charged(kernels)

    def ranked(self, state: State) -> float:
        """The predicted cost, plus a penalty for each choice."""
        return self.cost(state) * (1 + _EACH_CHOICE * len(state))

    def is_known(self, state: State) -> bool:
        """Whether the cost is exact."""
        kernels = self.of(state)
        return kernels is not None and not self.costs.num_unknown(kernels)

    def program(self, state: State) -> frozenset[tuple[str, int]]:
        """A key that is equal for states with the same program."""
        return frozenset(same_program(self.of(state) or ()).items())

    def _charged(self, kernels: list[HloKernel]) -> float:
        plain = self.of(()) or ()
        return self.charge * max(0.0, async_bytes(kernels) - async_bytes(plain))
