"""Greedy packings: buffers in a fixed order, each at the lowest offset that is free."""

from collections.abc import Callable, Sequence

from meshwright.features.allocate.problem.buffer import Buffer

ORDERS: dict[str, Callable[[Buffer], tuple[int, ...]]] = {
    "size": lambda b: (-b.size, b.lower - b.upper),
    "duration": lambda b: (b.lower - b.upper, -b.size),
    "area": lambda b: (b.size * (b.lower - b.upper), -b.size),
    "start": lambda b: (b.lower, -b.size),
}
"""Sort keys of the orders, the buffer to place first being the least."""


def greedy(buffers: Sequence[Buffer], order: str, best_fit: bool = False) -> list[int]:
    """Offsets in bytes, one per buffer; fixed buffers are placed first.

    best_fit: take the smallest gap that is large enough, as XLA's heap simulator does,
    instead of the lowest.
    """
    key = ORDERS[order]
    offsets = [0 if b.offset is None else b.offset for b in buffers]
    placed = [i for i, b in enumerate(buffers) if b.offset is not None]
    free = [i for i, b in enumerate(buffers) if b.offset is None]
    for index in sorted(free, key=lambda i: key(buffers[i])):
        buffer = buffers[index]
        blocks = sorted(
            (offsets[i], offsets[i] + buffers[i].size)
            for i in placed
            if buffers[i].size and _meet(buffers[i], buffer)
        )
        offsets[index] = _free_offset(buffer, blocks, best_fit)
        placed.append(index)
    return offsets


def height_of(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """The end of the highest buffer in bytes."""
    ends = (o + b.size for b, o in zip(buffers, offsets, strict=True))
    return max(ends, default=0)


def _free_offset(
    buffer: Buffer, blocks: Sequence[tuple[int, int]], best_fit: bool
) -> int:
    """The lowest aligned offset at which a buffer meets none of the blocks.

    best_fit: instead, the lowest offset in the smallest gap that is large enough.
    """
    best = best_gap = None
    bottom = 0
    for low, high in blocks:
        gap = low - bottom
        if gap >= buffer.size and (best_gap is None or gap < best_gap):
            best, best_gap = bottom, gap
            if not best_fit:
                break
        bottom = max(bottom, -(-high // buffer.alignment) * buffer.alignment)
    return bottom if best is None else best


def _meet(a: Buffer, b: Buffer) -> bool:
    if a.upper <= b.lower or b.upper <= a.lower:
        return False
    return any(s < v and u < t for s, t in a.spans for u, v in b.spans)
