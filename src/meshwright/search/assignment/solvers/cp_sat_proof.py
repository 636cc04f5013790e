"""CP-SAT on a small kernel: closes the gap that prices of memory leave."""

from __future__ import annotations

from meshwright.search.arrays import Floats
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.solvers.cp_sat import CpSatModel
from meshwright.search.assignment.solvers.linear import chosen, linearise_kernel


class CpSatProof:
    """A run of CP-SAT that starts from the pool's best and tells it what it finds."""

    def __init__(self, pool: Incumbent, seed: int) -> None:
        self.pool = pool
        self.search = CpSatModel(linearise_kernel(pool.reduced, pool.memory), seed, 1)
        if pool.choices is not None:
            self.search.hint(pool.reduced.starts[:-1] + pool.choices)

    def run(self) -> None:
        """Search until time is up, all is proven, or `stop` is called."""
        found, bound = self.search.run(self.pool.clock.left_s, self._offer)
        if found is not None:
            self._offer(found)
        self.pool.raise_bound(bound)
        if bound == float("inf"):
            self.pool.stopped = True

    def stop(self) -> None:
        """End the run, from another thread."""
        self.search.stop()

    def _offer(self, values: Floats) -> None:
        self.pool.offer(chosen(self.pool.reduced.starts, values))
        if self.pool.is_over:
            self.search.stop()
