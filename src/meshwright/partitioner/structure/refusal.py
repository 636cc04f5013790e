"""Refusals: shardings that a tactic asked for and that are not possible.

`Workspace.cut` (`workspace.py`) words most refusals; `why_not` in
`partitioner/propagate/legality.py` gives the reason.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """A sharding that a tactic asked for and that is not possible.

    where: what was to be sharded, as a path or op. axis: the mesh axis. why: the
        reason.
    """

    where: str
    axis: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} along {self.axis!r}: {self.why}"
