"""A refused cut: what a tactic asked for, and the reason why it is not possible.

`Workspace.cut` (`workspace.py`) words most refusals; `why_not` in
`partitioner/propagate/legality.py` gives the reason.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """A cut that a tactic asked for and that is not possible, with the reason."""

    where: str
    axis: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} along {self.axis!r}: {self.why}"
