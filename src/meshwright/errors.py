"""Exceptions that Meshwright raises on purpose.

A message says what is wrong and where, what was given, what is allowed and what to do.
"""

import collections.abc
from difflib import get_close_matches


def did_you_mean(name: object, known: collections.abc.Iterable[str]) -> str:
    """The end of a message that proposes the nearest known name; "" if none is near.

    >>> did_you_mean("tpu-v5", ["h100", "tpu-v5e"])
    "; did you mean 'tpu-v5e'?"
    """
    near = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


class MeshwrightError(Exception):
    """The caller asked for something that cannot be done; the message says what can."""


class MeshwrightWarning(UserWarning):
    """Something that works, but hardly as the caller wants; the message says what to do."""


class ShardingError(MeshwrightError):
    """The sharding is malformed: no array can have it."""


class MeshError(MeshwrightError):
    """The mesh cannot be built from these devices, or it lacks the named axis."""


class MachineError(MeshwrightError):
    """The machine is unknown, or its description is invalid."""


class CollectiveError(MeshwrightError):
    """The reduction program, or the hierarchy that it runs on, is malformed or wrong."""


class TacticError(MeshwrightError):
    """The tactic's pattern, dim or axis does not fit the program."""


class CaptureError(MeshwrightError):
    """The function cannot be captured as a program."""


class RuleError(MeshwrightError):
    """The factor rule is malformed, or it is registered twice."""


class TargetError(MeshwrightError):
    """The target on the command line cannot be loaded."""


class PlanError(MeshwrightError):
    """The plan cannot be read, or it does not fit its arguments."""


class CompilerError(MeshwrightError):
    """The ahead-of-time compiler of another machine is missing or failed."""


class SearchError(MeshwrightError):
    """The search cannot run with this budget, these parameters or these inputs."""


class AssignmentError(MeshwrightError):
    """The integer program is malformed or infeasible."""


class LearnedError(MeshwrightError):
    """A data set, model or checkpoint of learned costs is missing, corrupt or unfit."""


class ClusterError(MeshwrightError):
    """The cluster refused a request, or lost what the request needs."""


class CheckpointError(MeshwrightError):
    """A checkpoint cannot be written or restored, or its directory has another writer."""


class AllocationError(MeshwrightError):
    """The buffers of an allocation problem are malformed, or cannot be packed."""


class RecipeError(MeshwrightError):
    """The recipe of a training run cannot be read, or asks for what there is not."""


class ReplicaError(MeshwrightError):
    """A replica failed, or replicas differ where they must be equal."""


class ScheduleError(MeshwrightError):
    """The pipeline schedule is malformed, deadlocks, or exceeds the memory of a device."""


class StageError(MeshwrightError):
    """The step cannot be cut into these stages, or a stage failed while it ran."""


class DeployError(MeshwrightError):
    """The program cannot be deployed to the target, or the result differs from JAX's."""


class AutodiffError(MeshwrightError):
    """The function has no derivative of this kind, or a linear program is not linear."""


class SparseError(MeshwrightError):
    """The program, or a format, is none that the sparse compiler can express."""


class ChipsError(MeshwrightError):
    """The graph does not fit the chips of a module, or either of them is malformed."""
