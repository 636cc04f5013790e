"""The interface of a tactic, which is one decision about how a program is sharded.

`apply` shards dims by `Workspace.cut` (`partitioner/structure/workspace.py`), which
records what cannot be sharded, and why.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

from meshwright.partitioner.structure.workspace import Workspace
from meshwright.program.ir import Program


class TacticKind(Enum):
    """The way in which a tactic finds what it shards, which a search must know."""

    PIN = "names each input or op; a search that starts from it may refuse none of them"
    STRATEGY = "finds what to shard by itself, and skips what an axis does not divide"
    SEARCH = "runs a search of its own, so that no other search can start from it"


@runtime_checkable
class Tactic(Protocol):
    """One decision about sharding, whose `str` is the Python call that makes it."""

    @property
    def kind(self) -> TacticKind:
        """The way in which the tactic chooses what it shards."""
        ...

    @property
    def axes(self) -> tuple[str, ...] | None:
        """The mesh axes that the tactic names; `None` if it uses all axes of the mesh."""
        ...

    @property
    def rewrite(self) -> Callable[[Program], Program] | None:
        """A function that changes the program before any sharding; `None` if there is none.

        The rewrites of all tactics run before the first `apply`, so that all tactics
        see one program.
        """
        ...

    def apply(self, work: Workspace) -> None:
        """Add the tactic's decisions to those in `work`, and propagate them."""
        ...


def as_code(tactic: Tactic) -> str:
    """Python code of a tactic, after `import meshwright as mw`."""
    return re.sub(
        r"(?<=: )(REPLICATED|FIRST_DIVISIBLE)\b(?=[,}])", r"mw.\1", f"mw.{tactic}"
    )


@dataclass(frozen=True, slots=True, repr=False)
class AxisTactic:
    """A tactic that finds by itself what to shard along one axis.

    call: the call that makes it, as plans print it.
    cut_fn: does the sharding; its arguments are a workspace, the axis, and the name of
        the tactic. The call determines it, so that comparisons leave it out.
    """

    call: str
    axis: str
    cut_fn: Callable[[Workspace, str, str], None] = field(compare=False)
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Shard what `cut_fn` finds, and propagate."""
        self.cut_fn(work, work.mesh.require(self.axis), str(self))

    def __str__(self) -> str:
        return self.call

    def __repr__(self) -> str:
        return as_code(self)
