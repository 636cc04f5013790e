"""Exceptions that Meshwright raises on purpose.

A message says what is wrong and where, what was given, what is allowed and what to do.
"""

import collections.abc
from difflib import get_close_matches
from importlib import import_module
from typing import Any


def did_you_mean(name: object, known: collections.abc.Iterable[str]) -> str:
    """The end of an error message that proposes the known name nearest to `name`.

    The text is "" if no known name is near. Names that begin with it are the nearest.

    >>> did_you_mean("tpu-v5", ["h100", "tpu-v5e"])
    "; did you mean 'tpu-v5e'?"
    >>> did_you_mean("a100", ["a100-40g", "v100"])
    "; did you mean 'a100-40g'?"
    """
    names = list(known)
    begun = sorted(each for each in names if name and each.startswith(str(name)))
    near = begun or get_close_matches(str(name), names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class MeshwrightError(Exception):
    """A request that cannot be fulfilled; the message says what is possible instead.

    All other exceptions of Meshwright are subclasses.
    """


class MeshwrightWarning(UserWarning):
    """Code works, but hardly as its author intends; the message says what to do."""


class ShardingError(MeshwrightError):
    """A sharding is malformed, for example if one mesh axis splits two dims of an array."""


class MeshError(MeshwrightError):
    """The mesh cannot be built from these devices, or it lacks the named axis."""


class MachineError(MeshwrightError):
    """The machine is unknown, or its description is invalid."""


class CollectiveError(MeshwrightError):
    """A reduction program, or the hierarchy on which it runs, is malformed or wrong.

    A reduction program is a sequence of collectives in groups of devices that together
    compute one collective. A hierarchy is the levels of a machine, such as nodes and GPUs.
    """


class TacticError(MeshwrightError):
    """A tactic names an input, op, dim or mesh axis that does not fit the program."""


class CaptureError(MeshwrightError):
    """The function cannot be traced into a program."""


class RuleError(MeshwrightError):
    """A factor rule is malformed, or it is registered twice.

    A factor rule says which dims of an op's operands and results are split together
    (Shardy: op sharding rule).
    """


class TargetError(MeshwrightError):
    """The target on the command line, such as `model.py:train_step`, cannot be loaded."""


class NasError(MeshwrightError):
    """A search for a model, or a question about one, is malformed or has no answer."""


class PlanError(MeshwrightError):
    """A plan cannot be made or read, or it does not fit its function's arguments."""


class CompilerError(MeshwrightError):
    """The ahead-of-time compiler for a machine that is not present is missing or failed."""


class SearchError(MeshwrightError):
    """The search cannot run with this budget, these parameters or these inputs."""


class AssignmentError(MeshwrightError):
    """The integer program that chooses a sharding per op is malformed or infeasible."""


class LearnedError(MeshwrightError):
    """A learned cost model, its data or its checkpoint is missing, corrupt or unfit."""


class ClusterError(MeshwrightError):
    """The cluster refused a request, or lost arrays or workers that the request needs."""


class CheckpointError(MeshwrightError):
    """A checkpoint cannot be written or restored, or its directory has another writer."""


class AllocationError(MeshwrightError):
    """The buffers of an allocation problem are malformed, or cannot be packed."""


class RecipeError(MeshwrightError):
    """The recipe (TOML file) of a training run is unreadable or asks for unknown things."""


class ReplicaError(MeshwrightError):
    """A replica of a step failed, or replicas differ where they must be equal."""


class ScheduleError(MeshwrightError):
    """The pipeline schedule is malformed, deadlocks, or exceeds the memory of a device."""


class StageError(MeshwrightError):
    """The step cannot be cut into these pipeline stages, or a stage failed while it ran."""


class DeployError(MeshwrightError):
    """The program cannot be deployed to the target, or the result differs from JAX's."""


class AutodiffError(MeshwrightError):
    """The function has no derivative of this kind, or a linear program is not linear.

    A linear program is one in which each value that depends on a tangent is used once.
    """


class SparseError(MeshwrightError):
    """The program, or a sparse format, cannot be expressed by the sparse compiler."""


class PolicyError(MeshwrightError):
    """A trace, a policy or a cache that cannot be used."""


class AcceleratorError(MeshwrightError):
    """A design that cannot be read, that breaks a cap, or that cannot run an op."""


class NoDesignError(AcceleratorError):
    """No design of an accelerator that was tried keeps its caps."""


class FloorplanError(MeshwrightError):
    """A netlist or placement of a chip is faulty, or its macros cannot be placed."""


class ChipsError(MeshwrightError):
    """A graph of ops does not fit the chips of a module, or either is malformed.

    The module is a multi-chip module: a package of small chips that links join.
    """


def import_extra(
    module: str, need: str, extra: str, error: type[MeshwrightError]
) -> Any:
    """A module of an optional dependency; raises `error` if it cannot be imported.

    need: the beginning of the message, such as "training needs Grain". extra: the extra of
    Meshwright that installs the module.
    """
    try:
        return import_module(module)
    except ImportError as missing:
        raise error(
            f"{need}, which cannot be imported ({missing}); "
            f"pip install 'meshwright[{extra}]'"
        ) from missing
