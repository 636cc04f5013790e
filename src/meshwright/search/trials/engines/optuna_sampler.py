"""An adapter to optuna: one of its samplers proposes the candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from meshwright.errors import SearchError, did_you_mean, import_extra
from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.trial import Trial
from meshwright.search.trials.engines.engine import Batch, Proposals, check_counts
from meshwright.search.trials.space.coding import Draws

_SAMPLERS = {"tpe": "TPESampler", "nsga2": "NSGAIISampler", "random": "RandomSampler"}
_TRIES = 20
"""Proposals in a row that a condition excludes, after which a random one is taken."""


@dataclass(frozen=True, slots=True)
class Optuna:
    """Candidates by a sampler of optuna: "tpe", "nsga2" or "random".

    batch: candidates at once.
    """

    sampler: str = "tpe"
    batch: int = 4

    def __post_init__(self) -> None:
        check_counts(self, batch=1)
        if self.sampler not in _SAMPLERS:
            hint = did_you_mean(self.sampler, _SAMPLERS)
            allowed = ", ".join(_SAMPLERS)
            raise SearchError(f"no sampler {self.sampler!r}{hint}; there are {allowed}")

    def propose(self, draws: Draws) -> Proposals:
        optuna = import_extra(
            "optuna", "this engine needs optuna", "search", SearchError
        )
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = self._study(optuna, draws)
        genes = _distributions(optuna, draws)
        for code in map(draws.coding.code_of, draws.first):
            _enqueue(study, genes, code)
        asked: set[bytes] = set()
        while True:
            trials = [
                self._ask(optuna, study, genes, draws, asked) for _ in range(self.batch)
            ]
            told = yield Batch(np.array([code for _, code in trials]))
            for (trial, _), result in zip(trials, told, strict=True):
                _tell(optuna, study, trial, result)

    def _study(self, optuna: Any, draws: Draws) -> Any:
        seed = int(draws.rng.integers(2**31))
        sampler = getattr(optuna.samplers, _SAMPLERS[self.sampler])
        directions = ["minimize"] * draws.num_costs
        return optuna.create_study(sampler=sampler(seed=seed), directions=directions)

    def _ask(
        self,
        optuna: Any,
        study: Any,
        genes: dict[str, Any],
        draws: Draws,
        asked: set[bytes],
    ) -> tuple[Any, Floats]:
        """A trial of optuna, and its code; what is excluded or asked already fails."""
        for _ in range(_TRIES):
            trial = study.ask(genes)
            code = draws.coding.clean(np.array([trial.params[name] for name in genes]))
            is_new = code.tobytes() not in asked
            if is_new and not draws.space.broken(draws.space.decode(code.tolist())):
                asked.add(code.tobytes())
                return trial, code
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        code = draws.random()
        _enqueue(study, genes, code)
        return study.ask(genes), code


def _enqueue(study: Any, genes: dict[str, Any], code: Floats) -> None:
    """Let optuna ask for this candidate next."""
    study.enqueue_trial({name: float(v) for name, v in zip(genes, code, strict=True)})


def _distributions(optuna: Any, draws: Draws) -> dict[str, Any]:
    """A distribution of optuna for each gene, by name."""
    kinds = optuna.distributions
    made: dict[str, Any] = {}
    for gene in draws.coding.genes:
        if gene.kind == "choice":
            levels = [float(level) for level in range(int(gene.high) + 1)]
            made[gene.name] = kinds.CategoricalDistribution(levels)
        elif gene.kind == "grid":
            made[gene.name] = kinds.IntDistribution(0, int(gene.high))
        else:
            made[gene.name] = kinds.FloatDistribution(
                gene.low, gene.high, log=gene.kind == "log"
            )
    return made


def _tell(optuna: Any, study: Any, trial: Any, result: Trial) -> None:
    trial.set_constraint("violation", min(result.violation, 1e9))
    if result.reason:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, list(result.costs))
