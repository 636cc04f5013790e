"""The answer to an allocation problem: offsets, a proof that none exist, or neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from meshwright.app.output.picture import box, limit_line, page, svg
from meshwright.errors import AllocationError
from meshwright.features.allocate.greedy import height_of
from meshwright.features.allocate.problem.buffer import Buffer
from meshwright.features.allocate.problem.packing_check import faults
from meshwright.features.allocate.problem.table import format_buffers
from meshwright.plain import Frame


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
        return _FRAME.write(self, height=self.height)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The answer that `to_json` wrote; offsets are checked again."""
        return _FRAME.read(cls, text)

    def svg(self) -> str:
        """A picture of the packing: time to the right, offsets upwards."""
        return _draw_svg(self.buffers, self._require_offsets(), self.capacity)

    def report(self, path: str | Path) -> Path:
        """Write a page with the figures and the picture; its path."""
        file = Path(path)
        file.write_text(self._repr_html_(), encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        drawn = "" if self.offsets is None else self.svg()
        return page("Allocation", str(self), _LEAD, drawn)

    def _require_offsets(self) -> tuple[int, ...]:
        if self.offsets is None:
            raise AllocationError(
                f"there are no offsets: {self.outcome}: {self.reason}"
            )
        return self.offsets


_FRAME = Frame(
    AllocationError, "this is no saved allocation", derived=("height",), indent=1
)


# -- pictures ------------------------------------------------------------------------

_WIDTH, _HEIGHT, _MARGIN = 1000.0, 560.0, 12.0
_OUTLINE = 'stroke="#333" stroke-width="0.4"'
_LEAD = "Time runs to the right, offsets upwards. The dashed line is the capacity."


def _draw_svg(
    buffers: Sequence[Buffer], offsets: Sequence[int], capacity: int | None
) -> str:
    """A rectangle for each span of each buffer, with its id, times and bytes as tooltip."""
    start = min((b.lower for b in buffers), default=0)
    end = max((b.upper for b in buffers), default=1)
    tops = [o + b.size for b, o in zip(buffers, offsets, strict=True)]
    height = max([*tops, capacity or 0, 1])
    x_scale, y_scale = _WIDTH / (end - start), _HEIGHT / height
    marks = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#f4f4f4"/>']
    for index, (buffer, offset) in enumerate(zip(buffers, offsets, strict=True)):
        color = f"hsl({index * 137.5 % 360:.0f} 55% 65%)"
        note = (
            f"{buffer.id}: {buffer.size} bytes at {offset}, "
            f"live {buffer.lower} to {buffer.upper}"
        )
        y = _HEIGHT - (offset + buffer.size) * y_scale
        for lower, upper in buffer.spans:
            size = (upper - lower) * x_scale, buffer.size * y_scale
            corner = (lower - start) * x_scale, y
            marks.append(box(corner, size, color, note, _OUTLINE))
    if capacity is not None:
        marks.append(limit_line(_WIDTH, _HEIGHT - capacity * y_scale))
    return svg((_WIDTH, _HEIGHT), marks, _MARGIN)
