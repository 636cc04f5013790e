"""Search for a model that is accurate, and fast on the machine that the user names.

Begin reading at `command.py`, which is `meshwright nas`. `cost` predicts the latency of a
model; `rewriting` replaces subgraphs of a model by cheaper ones with the same `properties`,
which `synthesis` finds.
"""

from meshwright.features.codesign.nas.cost.latency import Latency, latency
from meshwright.features.codesign.nas.families.members import scaled_target
from meshwright.features.codesign.nas.families.points import Point
from meshwright.features.codesign.nas.families.scaling import Family, scale_family
from meshwright.features.codesign.nas.rewriting.rewrite import (
    Rewriting,
    RewrittenModel,
    rewrite,
)
from meshwright.features.codesign.nas.rewriting.task import Task
from meshwright.features.codesign.nas.searching.reward import Reward
from meshwright.features.codesign.nas.searching.search import ModelFront, search
from meshwright.features.codesign.nas.searching.space_file import SpaceFile
from meshwright.features.codesign.nas.searching.supernet import Supernet
from meshwright.features.codesign.nas.searching.trained import Trained
from meshwright.search.trials import (
    ENGINES,
    Ageing,
    Choice,
    CrossEntropy,
    GaussianProcess,
    Halving,
    Nsga2,
    Optuna,
    Parzen,
    Pymoo,
    RandomDraws,
    Range,
    Repeat,
    Scalarised,
    Space,
)

__all__ = [
    "ENGINES",
    "Ageing",
    "Choice",
    "CrossEntropy",
    "Family",
    "GaussianProcess",
    "Halving",
    "Latency",
    "ModelFront",
    "Nsga2",
    "Optuna",
    "Parzen",
    "Point",
    "Pymoo",
    "RandomDraws",
    "Range",
    "Repeat",
    "Reward",
    "Rewriting",
    "RewrittenModel",
    "Scalarised",
    "Space",
    "SpaceFile",
    "Supernet",
    "Task",
    "Trained",
    "latency",
    "rewrite",
    "scale_family",
    "scaled_target",
    "search",
]
