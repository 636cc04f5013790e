"""The features, as the core knows them: commands, and functions that the core calls.

The core imports no feature. Where it offers one, such as `pipeline=True` of `autoplan`, it
calls `feature("plan_or_pipeline")`, and the feature is imported then. A new feature adds
its command to `COMMANDS`, and to `_FUNCTIONS` what `partition`, `autoplan`, a plan or a
core command hands over to it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # types that functions of the core return for a feature
    from meshwright.features.allocate.step_offsets import ExactOffsets
    from meshwright.features.cluster.client import Slice
    from meshwright.features.cluster.cluster_step import ClusterStep
    from meshwright.features.pipeline.planning.pipeline_plan import PipelinePlan

    __all__ = ["ClusterStep", "ExactOffsets", "PipelinePlan", "Slice"]


class Command(NamedTuple):
    """A command of `meshwright`.

    home: module below `meshwright` with a function named after the command.
    panel: what a user wants to do, the heading in `meshwright --help`.
    line: first line of the command's help.
    """

    home: str
    panel: str
    line: str


_PLAN, _TRAIN = "Plan a step", "Train on many devices"
_COMPILE = "Compile and deploy a function"
_SOLVE = "Solve one problem of a file"

COMMANDS = {
    "plan": Command(
        "cli.plan",
        _PLAN,
        "Print shardings and collectives, tactic by tactic. Needs no devices.",
    ),
    "explain": Command(
        "cli.explain",
        _PLAN,
        "Print why each collective is there, each conflict, and each op left whole.",
    ),
    "check": Command(
        "cli.check",
        _PLAN,
        "Run original and partitioned on virtual devices and compare every output.",
    ),
    "confirm": Command(
        "cli.confirm",
        _PLAN,
        "Compile a step with the real compiler of a machine, and compare the figures.",
    ),
    "machines": Command(
        "cli.machines",
        _PLAN,
        "List the preset machines, with figures of one device each.",
    ),
    "collectives": Command(
        "features.collectives.command",
        _PLAN,
        "List placements of axes on a machine, and programs that reduce over them.",
    ),
    "zoo": Command(
        "features.zoo.command",
        _PLAN,
        "List the programs of the zoo: parameters, FLOPs a step, memory on one device.",
    ),
    "chips": Command(
        "features.chips.command",
        _PLAN,
        "Place the ops of a program on the chips of a module, as a pipeline.",
    ),
    "train": Command(
        "features.train.command",
        _TRAIN,
        "Train as a recipe says, and save, measure and evaluate on the way.",
    ),
    "cluster": Command(
        "features.cluster.command",
        _TRAIN,
        "Start the workers of a cluster, look at them, and end them.",
    ),
    "tune": Command(
        "features.tune.command",
        _COMPILE,
        "Find layouts of values, or tiles of kernels, that cost less than the default.",
    ),
    "learned": Command(
        "features.tune.learned_command",
        _COMPILE,
        "Collect data, train and evaluate models that rank tilings and layouts.",
    ),
    "deploy": Command(
        "features.deploy.command",
        _COMPILE,
        "Write a model, a loader in Python and a README, after a comparison with JAX.",
    ),
    "allocate": Command(
        "features.allocate.command",
        _SOLVE,
        "Place buffers in a memory so that those live together do not overlap.",
    ),
    "iopddl": Command(
        "features.iopddl.command",
        _SOLVE,
        "Solve a problem of the ASPLOS 2025 contest on intra-operator parallelism.",
    ),
}
"""Every command by name, in the order of `meshwright --help`."""

_FUNCTIONS = {
    "exact_offsets": "allocate.step_offsets",  # Plan.offsets
    "levels_that_gain": "collectives.levels_that_gain",  # Plan.levels_that_gain
    "pipeline_command": "pipeline.command",  # meshwright plan --pipeline
    "plan_or_pipeline": "pipeline.find_pipeline",  # autoplan(pipeline=True)
    "residuals_command": "autodiff.command",  # meshwright explain --residuals
}
"""Functions that the core calls, and the modules below `features` that define them."""

_PLACES = {
    "meshwright.features.cluster.client.Slice": "cluster.cluster_step.step_on_slice",
}
"""What `partition` takes where a mesh stands, by class, and the function that makes the
step there from the partitioned function and the place. Each place has a `mesh`.
"""


def feature(name: str) -> Any:
    """The function `name` of a feature, which is imported at the first call."""
    return getattr(import_module(f"meshwright.features.{_FUNCTIONS[name]}"), name)


def step_maker(place: Any) -> Any:
    """The function that puts a partitioned function on `place`; `None` for a mesh."""
    kind = type(place)
    home = _PLACES.get(f"{kind.__module__}.{kind.__qualname__}")
    if home is None:
        return None
    module, _, name = home.rpartition(".")
    return getattr(import_module(f"meshwright.features.{module}"), name)
