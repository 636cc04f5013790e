"""The engines by name, with their default parameters."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.errors import SearchError, did_you_mean
from meshwright.search.trials.engines.ageing import Ageing
from meshwright.search.trials.engines.cross_entropy import CrossEntropy
from meshwright.search.trials.engines.engine import TrialEngine
from meshwright.search.trials.engines.firefly import Firefly
from meshwright.search.trials.engines.halving import Halving
from meshwright.search.trials.engines.memetic import Memetic
from meshwright.search.trials.engines.model_based import GaussianProcess
from meshwright.search.trials.engines.nsga2 import Nsga2
from meshwright.search.trials.engines.optuna_sampler import Optuna
from meshwright.search.trials.engines.parzen import Parzen
from meshwright.search.trials.engines.pymoo_algorithm import Pymoo
from meshwright.search.trials.engines.random_draws import RandomDraws

ENGINES: dict[str, Callable[[], TrialEngine]] = {
    "nsga2": Nsga2,
    "memetic": Memetic,
    "ageing": Ageing,
    "cross-entropy": CrossEntropy,
    "firefly": Firefly,
    "gp": GaussianProcess,
    "tpe": Parzen,
    "halving": Halving,
    "random": RandomDraws,
    "optuna-tpe": lambda: Optuna("tpe"),
    "optuna-nsga2": lambda: Optuna("nsga2"),
    "pymoo-nsga2": lambda: Pymoo("nsga2"),
}


def find_engine(engine: str | TrialEngine) -> TrialEngine:
    """The engine of that name, or the one that was given."""
    if not isinstance(engine, str):
        if isinstance(engine, type) or not callable(getattr(engine, "propose", None)):
            names = ", ".join(ENGINES)
            raise SearchError(
                f"engine is {engine!r:.80}; wanted {names}, or an engine such as Nsga2()"
            )
        return engine
    if engine not in ENGINES:
        hint = did_you_mean(engine, ENGINES)
        raise SearchError(f"no engine {engine!r}{hint}; there are {', '.join(ENGINES)}")
    return ENGINES[engine]()
