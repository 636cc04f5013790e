"""Buffers of the allocation problem: lifetimes, sizes, and limits of their offsets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from meshwright.errors import AllocationError

MOST_BYTES = 2**53
"""Largest size, offset, alignment and time: sums of a thousand stay within 64 bits."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A block of memory that is live from time `lower` until before `upper`.

    id: unique name. size: bytes. alignment: the offset is a multiple of it. offset: fixed
    offset in bytes, or `None` to let the search choose. gaps: half-open times within the
    lifetime, in order, during which other buffers may use the memory.

    >>> Buffer("x", 0, 10, 64, gaps=((2, 4),)).spans
    ((0, 2), (4, 10))
    """

    id: str
    lower: int
    upper: int
    size: int
    alignment: int = 1
    offset: int | None = None
    gaps: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise AllocationError(f"buffer {self.id!r}{fault}")

    def _faults(self) -> Iterator[str]:
        """What is wrong with the buffer, each as the rest of a sentence."""
        for name in ("lower", "upper", "size", "alignment"):
            yield from _no_integer(name, getattr(self, name))
        if self.lower >= self.upper:
            yield (
                f" is live from {self.lower} until before {self.upper}: upper must be "
                "greater than lower"
            )
        if self.size < 0:
            yield f" has size {self.size}: give at least 0 bytes"
        if self.alignment < 1:
            yield f" has alignment {self.alignment}: give at least 1"
        if self.offset is not None:
            yield from _no_integer("offset", self.offset)
            if self.offset < 0 or self.offset % self.alignment:
                yield (
                    f" is fixed at offset {self.offset}: give a multiple of its "
                    f"alignment {self.alignment}, at least 0"
                )
        yield from self._faults_of_gaps()

    def _faults_of_gaps(self) -> Iterator[str]:
        end, lifetime = self.lower, f"lifetime {self.lower}-{self.upper}"
        for lower, upper in self.gaps:
            yield from _no_integer("gap", lower)
            yield from _no_integer("gap", upper)
            if not end <= lower < upper <= self.upper:
                yield (
                    f", gap {lower}-{upper}: gaps must lie within the {lifetime}, in "
                    "order, without overlap"
                )
            end = upper
        if self.gaps and not self.spans:
            yield f": its gaps leave nothing of its {lifetime}; leave the buffer out"

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The half-open times at which the buffer occupies its memory."""
        spans: list[tuple[int, int]] = []
        start = self.lower
        for lower, upper in (*self.gaps, (self.upper, self.upper)):
            if start < lower:
                spans.append((start, lower))
            start = upper
        return tuple(spans)


type AnyBuffer = Buffer | tuple[int, int, int]
"""A buffer, or its (lower, upper, size)."""


def as_buffers(given: Iterable[AnyBuffer]) -> tuple[Buffer, ...]:
    """The buffers, with distinct ids; a triple becomes a buffer named by its position."""
    buffers = tuple(_buffers(given))
    seen: set[str] = set()
    for buffer in buffers:
        if buffer.id in seen:
            raise AllocationError(
                f"two buffers have the id {buffer.id!r}: give every buffer its own id"
            )
        seen.add(buffer.id)
    return buffers


def _buffers(given: Iterable[AnyBuffer]) -> Iterator[Buffer]:
    for index, item in enumerate(given):
        if isinstance(item, Buffer):
            yield item
        elif isinstance(item, Sequence) and len(item) == 3:
            yield Buffer(str(index), *item)
        else:
            raise AllocationError(
                f"buffer {index} is {item!r}: give mw.Buffer(id, lower, upper, size) or "
                "(lower, upper, size)"
            )


def live_bytes(buffers: Sequence[Buffer]) -> int:
    """The most bytes that are live at one time: no packing is lower."""
    events: dict[int, int] = {}
    for buffer in buffers:
        for lower, upper in buffer.spans:
            events[lower] = events.get(lower, 0) + buffer.size
            events[upper] = events.get(upper, 0) - buffer.size
    live = most = 0
    for time in sorted(events):
        live += events[time]
        most = max(most, live)
    return most


def _no_integer(field: str, value: object) -> Iterator[str]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield f" has {field} {value!r}: give a whole number"
    elif abs(value) > MOST_BYTES:
        yield f" has {field} {value}: give at most {MOST_BYTES} (2**53)"
