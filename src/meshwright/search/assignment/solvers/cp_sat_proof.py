"""CP-SAT on a small reduced problem: closes the gap that Lagrangian prices leave."""

from __future__ import annotations

from meshwright.search.arrays import Floats
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.solvers.cp_sat import CpSatModel
from meshwright.search.assignment.solvers.linear import chosen, linearise_reduced


class CpSatProof:
    """A run of CP-SAT that starts from the incumbent and offers it each solution."""

    def __init__(self, incumbent: Incumbent, seed: int) -> None:
        self.incumbent = incumbent
        self.search = CpSatModel(
            linearise_reduced(incumbent.reduced, incumbent.memory), seed, 1
        )
        if incumbent.choices is not None:
            self.search.hint(incumbent.reduced.starts[:-1] + incumbent.choices)

    def run(self) -> None:
        """Search until the time is up, the optimum is proven, or `stop` is called."""
        found, bound = self.search.run(self.incumbent.clock.left_s, self._offer)
        if found is not None:
            self._offer(found)
        self.incumbent.raise_bound(bound)
        if bound == float("inf"):
            self.incumbent.stopped = True

    def stop(self) -> None:
        """End the run; safe from other threads."""
        self.search.stop()

    def _offer(self, values: Floats) -> None:
        self.incumbent.offer(chosen(self.incumbent.reduced.starts, values))
        if self.incumbent.is_over:
            self.search.stop()
