"""Search by trials: expensive evaluations, several objectives, and constraints.

It knows nothing of what a candidate is. In: a space as data, and a function from a
candidate (a plain dict) to its figures (a dict of numbers). Out: the front, the candidates
that no other dominates. Begin reading at `running/run.py`.

    space = Space({"lanes": Choice(1, 2, 4, 8), "sizes": Repeat(Range(8, 64, 8), 1, 3)},
                  where=lambda c: c["lanes"] * max(c["sizes"]) <= 256)
    goals = Goals({"speed": "max", "area_mm2": "min"}, {"power_w": 75})
    study = Study(space, goals, find_engine("nsga2"), seed=0)
    front = run_trials(study, evaluate, trials=300, journal="journal.jsonl", workers=2)
    front.points; front.best(area_mm2=100); front.hypervolume({"speed": 0, "area_mm2": 500})

Parts of a space: `Choice` of options, which may be parts themselves; `Range` of numbers;
`Repeat`, a list; `Space`, a dict; a plain value stands for itself. `where` is a function of
the dict, or several. `Space.encode(candidate)` fails for what is not in the space.

An evaluation may raise, return NaN, lack a figure, exceed `trial_seconds`, or end its
process (with `workers`): the trial is recorded with the reason, and the search goes on. It
is called as `evaluate(candidate)`, and by engines that begin with less than a whole
evaluation as `evaluate(candidate, fidelity=0.25)`. With `workers` it has to be importable.

A search with a journal that is killed goes on when it is run again, and ends with the same
front; the number of workers changes nothing. To run the trials yourself: `AskTell(study)`,
whose `ask()` gives `Request`s and whose `tell([...])` takes their dicts of figures.

Engines by name, in `ENGINES`, each a record of parameters: see `engines`. A new one yields
batches of codes (vectors of genes) and receives their trials.
"""

from meshwright.search.trials.costs.front import Front
from meshwright.search.trials.costs.goals import Goals
from meshwright.search.trials.costs.hypervolume import hypervolume
from meshwright.search.trials.costs.pareto import (
    crowding,
    dominates,
    front_of,
    merit_order,
    pareto_ranks,
)
from meshwright.search.trials.costs.trial import Request, Trial, TrialOutcome
from meshwright.search.trials.engines.ageing import Ageing
from meshwright.search.trials.engines.by_name import ENGINES, find_engine
from meshwright.search.trials.engines.cross_entropy import CrossEntropy
from meshwright.search.trials.engines.engine import Batch, TrialEngine
from meshwright.search.trials.engines.firefly import Firefly
from meshwright.search.trials.engines.halving import Halving
from meshwright.search.trials.engines.memetic import Memetic
from meshwright.search.trials.engines.model_based import GaussianProcess
from meshwright.search.trials.engines.nsga2 import Nsga2
from meshwright.search.trials.engines.optuna_sampler import Optuna
from meshwright.search.trials.engines.parzen import Parzen
from meshwright.search.trials.engines.pymoo_algorithm import Pymoo
from meshwright.search.trials.engines.random_draws import RandomDraws
from meshwright.search.trials.engines.scalarised import Scalarised
from meshwright.search.trials.running.ask_tell import AskTell, Study
from meshwright.search.trials.running.run import run_trials
from meshwright.search.trials.space.parts import (
    Candidate,
    Choice,
    Range,
    Repeat,
    Space,
)

__all__ = [
    "ENGINES",
    "Ageing",
    "AskTell",
    "Batch",
    "Candidate",
    "Choice",
    "CrossEntropy",
    "Firefly",
    "Front",
    "GaussianProcess",
    "Goals",
    "Halving",
    "Memetic",
    "Nsga2",
    "Optuna",
    "Parzen",
    "Pymoo",
    "RandomDraws",
    "Range",
    "Repeat",
    "Request",
    "Scalarised",
    "Space",
    "Study",
    "Trial",
    "TrialEngine",
    "TrialOutcome",
    "crowding",
    "dominates",
    "find_engine",
    "front_of",
    "hypervolume",
    "merit_order",
    "pareto_ranks",
    "run_trials",
]
