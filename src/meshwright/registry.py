"""The features, as the core knows them: commands, and functions that the core calls.

The core imports no feature. Where it offers one, such as `pipeline=True` of `autoplan`, it
calls `feature("plan_or_pipeline")`, and the feature is imported then. A new feature adds
its command to `_PANELS`, and to `_FUNCTIONS` what `partition`, `autoplan`, a plan or a
core command hands over to it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # types that functions of the core return for a feature
    from meshwright.features.allocate.step_offsets import ExactOffsets
    from meshwright.features.cluster.client import Slice
    from meshwright.features.cluster.cluster_step import ClusterStep
    from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan

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


_PANELS = {
    "Plan a step": {
        "plan": "Print shardings and collectives, tactic by tactic. Needs no devices.",
        "explain": (
            "Print why each collective is there, each conflict, and each op left whole."
        ),
        "check": (
            "Run original and partitioned on virtual devices and compare every output."
        ),
        "confirm": (
            "Compile a step with the real compiler of a machine, and compare the figures."
        ),
        "machines": "List the preset machines, with figures of one device each.",
        "collectives": (
            "List placements of axes on a machine, and programs that reduce over them."
        ),
        "zoo": (
            "List the programs of the zoo: parameters, FLOPs a step, memory on one device."
        ),
        "chips": "Place the ops of a program on the chips of a module, as a pipeline.",
    },
    "Train on many devices": {
        "train": "Train as a recipe says, and save, measure and evaluate on the way.",
        "cluster": "Start the workers of a cluster, look at them, and end them.",
    },
    "Compile and deploy a function": {
        "tune": (
            "Find layouts of values, or tiles of kernels, that cost less than the default."
        ),
        "learned": (
            "Collect data, train and evaluate models that rank tilings and layouts."
        ),
        "deploy": (
            "Write a model, a loader in Python and a README, after a comparison with JAX."
        ),
    },
    "Search for a model or a machine": {
        "nas": "Search for models that are accurate, and fast on a given machine.",
        "accelerator": "Evaluate designs of accelerators, and search for one.",
        "codesign": "Search for a model and the accelerator that runs it, together.",
        "floorplan": "Place a chip's macros, and compute the exact proxy cost.",
    },
    "Learn a policy for a system": {
        "policies": (
            "Compare learned policies in systems with the ones that they replace."
        ),
    },
    "Solve one problem of a file": {
        "allocate": (
            "Place buffers in a memory so that those live together do not overlap."
        ),
        "iopddl": (
            "Solve a problem of the ASPLOS 2025 contest on intra-operator parallelism."
        ),
    },
}
"""What a user wants to do, as headings of `meshwright --help`, and the commands for it in
the order of the help, each with the first line of its own help.
"""

_CORE = ("plan", "explain", "check", "confirm", "machines")
"""The commands of the core, which lie in `cli`."""

_HOMES = {
    **{name: f"cli.{name}" for name in _CORE},
    "learned": "features.tune.learned_command",
    "nas": "features.codesign.nas.command",
    "accelerator": "features.codesign.accelerator.command",
    "codesign": "features.codesign.joint.command",
    "floorplan": "features.codesign.floorplan.command",
}
"""Modules of commands that are not called `features.NAME.command`."""

COMMANDS = {
    name: Command(_HOMES.get(name, f"features.{name}.command"), panel, line)
    for panel, lines in _PANELS.items()
    for name, line in lines.items()
}
"""Every command by name, in the order of `meshwright --help`."""

_FUNCTIONS = {
    "exact_offsets": "allocate.step_offsets",  # Plan.offsets
    "levels_that_gain": "collectives.levels_that_gain",  # Plan.proposed_levels
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
