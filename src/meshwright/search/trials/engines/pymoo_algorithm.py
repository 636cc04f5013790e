"""An adapter to pymoo: one of its evolutionary algorithms proposes the candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.errors import SearchError, did_you_mean, import_extra
from meshwright.search.trials.engines.engine import Batch, Proposals, check_counts
from meshwright.search.trials.space.coding import Draws

_ALGORITHMS = {
    "nsga2": ("pymoo.algorithms.moo.nsga2", "NSGA2"),
    "agemoea": ("pymoo.algorithms.moo.age", "AGEMOEA"),
    "sms": ("pymoo.algorithms.moo.sms", "SMSEMOA"),
}
_WORST = 1e9
"""Cost and violation of a trial that failed; pymoo takes no infinite numbers."""


@dataclass(frozen=True, slots=True)
class Pymoo:
    """Candidates by an algorithm of pymoo: "nsga2", "agemoea" or "sms".

    Genes are numbers from 0 to 1 to pymoo. A code that a condition excludes is replaced by
    a random one. population: codes of a generation.
    """

    algorithm: str = "nsga2"
    population: int = 40

    def __post_init__(self) -> None:
        check_counts(self, population=2)
        if self.algorithm not in _ALGORITHMS:
            hint = did_you_mean(self.algorithm, _ALGORITHMS)
            allowed = ", ".join(_ALGORITHMS)
            raise SearchError(
                f"no algorithm {self.algorithm!r}{hint}; there are {allowed}"
            )

    def propose(self, draws: Draws) -> Proposals:
        coding = draws.coding
        if not coding.genes:  # one candidate, of which pymoo has no variables
            yield Batch(draws.initial(1))
            return
        algorithm = self._algorithm(draws)
        while algorithm.has_next():
            asked = algorithm.ask()
            codes = coding.from_units(np.atleast_2d(asked.get("X").astype(np.float64)))
            codes = np.array([draws.allowed(code) for code in codes])
            told = yield Batch(codes)
            asked.set("X", coding.units(codes))
            costs = np.array([trial.costs for trial in told])
            over = np.array([[trial.violation] for trial in told])
            asked.set("F", np.minimum(costs, _WORST))
            asked.set("G", np.minimum(over, _WORST))
            for one in asked:
                one.evaluated.update({"F", "G"})
            algorithm.tell(infills=asked)

    def _algorithm(self, draws: Draws) -> Any:
        def load(module: str) -> Any:
            return import_extra(
                module, "this engine needs pymoo", "search", SearchError
            )

        home, name = _ALGORITHMS[self.algorithm]
        size = len(draws.coding.genes)
        problem = load("pymoo.core.problem").Problem(
            n_var=size,
            n_obj=draws.num_costs,
            n_ieq_constr=1,
            xl=np.zeros(size),
            xu=np.ones(size),
        )
        first = draws.coding.units(
            draws.initial(max(self.population, len(draws.first)))
        )
        algorithm = getattr(load(home), name)(pop_size=self.population, sampling=first)
        seed = int(draws.rng.integers(2**31))
        algorithm.setup(problem, termination=("n_gen", 10**9), seed=seed, verbose=False)
        return algorithm
