"""Parts of a pipelined step: the passes of a stage, and its update."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PartKind(Enum):
    """The kind of a part: a pass over a microbatch, or an update."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class StagePart:
    """A pass of a stage over one microbatch, or its update after all of them."""

    kind: PartKind
    stage: int

    def place(self, num_stages: int) -> int:
        """Position in the chain of forward passes, backward passes in reverse, updates."""
        if self.kind is PartKind.FORWARD:
            return self.stage
        if self.kind is PartKind.BACKWARD:
            return 2 * num_stages - 1 - self.stage
        return 2 * num_stages

    def __str__(self) -> str:
        return f"{self.kind.value} of stage {self.stage}"


def part_at(place: int, num_stages: int) -> StagePart:
    """The pass at a position in the chain; the inverse of `StagePart.place` for passes."""
    if place < num_stages:
        return StagePart(PartKind.FORWARD, place)
    return StagePart(PartKind.BACKWARD, 2 * num_stages - 1 - place)


@dataclass(frozen=True, slots=True, eq=False)
class PartSource:
    """The source of an op that belongs to a part; prints as the source of the op itself.

    Lowering keeps the source of an op in all device ops that it writes for it, so that
    these are known to belong to the part as well.
    """

    source: object
    part: StagePart

    def __str__(self) -> str:
        return str(self.source)

    def __bool__(self) -> bool:
        return bool(str(self))
