"""The answer to an allocation problem: offsets, a proof that none exist, or neither."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from meshwright.errors import AllocationError
from meshwright.search.allocation.buffer import Buffer
from meshwright.search.allocation.check import faults
from meshwright.search.allocation.greedy import height_of
from meshwright.search.allocation.picture import draw_page, draw_svg
from meshwright.search.allocation.table import format_buffers


class AllocationOutcome(StrEnum):
    """What a search for offsets has found."""

    PACKED = "packed"
    INFEASIBLE = "infeasible"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Offsets in bytes of buffers, or why there are none.

    capacity: bytes that were allowed, or `None`. offsets: one per buffer, or `None`.
    bound: no packing is lower, in bytes. reason: a sentence. nodes: placements tried.
    """

    outcome: AllocationOutcome
    buffers: tuple[Buffer, ...]
    capacity: int | None
    offsets: tuple[int, ...] | None
    bound: int
    reason: str
    nodes: int
    seconds: float

    def __post_init__(self) -> None:
        if (self.outcome is AllocationOutcome.PACKED) != (self.offsets is not None):
            raise AllocationError(f"outcome {self.outcome} with offsets {self.offsets}")
        if self.offsets is not None:
            for fault in faults(self.buffers, self.offsets, self.capacity):
                raise AllocationError(f"these offsets are no packing: {fault}")

    @property
    def height(self) -> int | None:
        """The end of the highest buffer in bytes, or `None` without offsets."""
        return None if self.offsets is None else height_of(self.buffers, self.offsets)

    @property
    def is_optimal(self) -> bool:
        """Whether no packing is lower."""
        return self.height is not None and self.height <= self.bound

    @property
    def by_id(self) -> dict[str, int]:
        """The offset of each buffer."""
        offsets = self.offsets or ()
        return {b.id: o for b, o in zip(self.buffers, offsets, strict=False)}

    def __str__(self) -> str:
        height = self.height
        lines = [
            f"outcome   {self.outcome}: {self.reason}",
            f"buffers   {len(self.buffers)}",
        ]
        if self.capacity is not None:
            lines.append(f"capacity  {self.capacity} bytes")
        if height is not None:
            note = " (no packing is lower)" if self.is_optimal else ""
            lines.append(f"height    {height} bytes{note}")
        lines.append(f"bound     {self.bound} bytes")
        if height is not None and self.bound:
            lines.append(f"gap       {height / self.bound - 1:.2%}")
        lines.append(f"nodes     {self.nodes}")
        return "\n".join([*lines, f"seconds   {self.seconds:.2f}"])

    def to_csv(self) -> str:
        """MiniMalloc's CSV of the buffers, with a column `offset`."""
        return format_buffers(self.buffers, self._require_offsets())

    def to_json(self) -> str:
        """The answer as JSON, which `from_json` reads."""
        fields = asdict(self) | {"height": self.height}
        return json.dumps(fields, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The answer that `to_json` wrote; offsets are checked again."""
        try:
            fields: dict[str, Any] = json.loads(text)
            fields.pop("height", None)
            fields["outcome"] = AllocationOutcome(fields["outcome"])
            fields["buffers"] = tuple(_read_buffer(b) for b in fields["buffers"])
            if fields["offsets"] is not None:
                fields["offsets"] = tuple(fields["offsets"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AllocationError(f"this is no saved allocation: {error!r}") from None

    def svg(self) -> str:
        """A picture of the packing: time to the right, offsets upwards."""
        return draw_svg(self.buffers, self._require_offsets(), self.capacity)

    def report(self, path: str | Path) -> Path:
        """Write a page with the figures and the picture; its path."""
        file = Path(path)
        drawn = "" if self.offsets is None else self.svg()
        file.write_text(draw_page(str(self), drawn), encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        return draw_page(str(self), "" if self.offsets is None else self.svg())

    def _require_offsets(self) -> tuple[int, ...]:
        if self.offsets is None:
            raise AllocationError(
                f"there are no offsets: {self.outcome}: {self.reason}"
            )
        return self.offsets


def _read_buffer(fields: Mapping[str, Any]) -> Buffer:
    values: dict[str, Any] = dict(fields)
    values["gaps"] = tuple((low, high) for low, high in fields["gaps"])
    return Buffer(**values)
