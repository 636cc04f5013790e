"""Parts of a pipelined training step: a stage's passes and its update."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class PartKind(Enum):
    """The kind of a part: a pass over a microbatch, or a stage's parameter update."""

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class StagePart:
    """A pipeline stage's pass over one microbatch, or its update after all."""

    kind: PartKind
    stage: int

    def place(self, num_stages: int) -> int:
        """The part's position in the order of one microbatch.

        Forward passes come by stage, then backward passes from the last stage to the
        first, then all updates, which share one position.
        """
        if self.kind is PartKind.FORWARD:
            return self.stage
        if self.kind is PartKind.BACKWARD:
            return 2 * num_stages - 1 - self.stage
        return 2 * num_stages

    def __str__(self) -> str:
        return f"{self.kind.value} of stage {self.stage}"


def part_at(place: int, num_stages: int) -> StagePart:
    """The forward or backward pass at a position; the inverse of `StagePart.place`."""
    if place < num_stages:
        return StagePart(PartKind.FORWARD, place)
    return StagePart(PartKind.BACKWARD, 2 * num_stages - 1 - place)
