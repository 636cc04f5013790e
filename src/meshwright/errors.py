"""Every exception that Meshwright raises on purpose.

A message says what is wrong, where, what was got, what was wanted and what to do.
"""


class MeshwrightError(Exception):
    """The caller asked for something that cannot be done; the message says what can."""


class ShardingError(MeshwrightError):
    """A sharding that no array can have."""


class MeshError(MeshwrightError):
    """A mesh that does not exist here, or an axis that it does not have."""


class MachineError(MeshwrightError):
    """A machine that nobody describes, or a description that cannot be."""


class TacticError(MeshwrightError):
    """A tactic that does not fit the program: pattern, dim or axis."""


class CaptureError(MeshwrightError):
    """A function that cannot be captured as a program."""


class RuleError(MeshwrightError):
    """A factor rule that is malformed or registered twice."""


class TargetError(MeshwrightError):
    """A command line target that cannot be loaded."""


class PlanError(MeshwrightError):
    """A plan that cannot be read or does not fit its arguments."""


class CompilerError(MeshwrightError):
    """The ahead-of-time compiler of another machine is missing or failed."""


class SearchError(MeshwrightError):
    """A search that cannot be run: its budget, its parameters or what it is given."""


class AssignmentError(MeshwrightError):
    """An integer program that is malformed, or that nothing can satisfy."""
