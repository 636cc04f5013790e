"""Greedy packings: buffers in a fixed order, each at the lowest offset that is free."""

from collections.abc import Callable, Sequence

import numpy as np

from meshwright.features.allocate.problem.buffer import Buffer

ORDERS: dict[str, Callable[[Buffer], tuple[int, ...]]] = {
    "size": lambda b: (-b.size, b.lower - b.upper),
    "duration": lambda b: (b.lower - b.upper, -b.size),
    "area": lambda b: (b.size * (b.lower - b.upper), -b.size),
    "start": lambda b: (b.lower, -b.size),
}
"""Sort keys of the orders, the buffer to place first being the least."""


_ENDS = "lower", "upper"
"""Names of the fields with the first moment of a buffer, and the one after its last."""


def greedy(buffers: Sequence[Buffer], order: str, best_fit: bool = False) -> list[int]:
    """Offsets in bytes, one per buffer; fixed buffers are placed first.

    best_fit: take the smallest gap that is large enough, as XLA's heap simulator does,
    instead of the lowest.
    """
    key = ORDERS[order]
    offsets = [0 if b.offset is None else b.offset for b in buffers]
    lower, upper = (np.array([getattr(b, end) for b in buffers]) for end in _ENDS)
    is_placed = np.array([b.offset is not None and b.size > 0 for b in buffers], bool)
    free = [i for i, b in enumerate(buffers) if b.offset is None]
    for index in sorted(free, key=lambda i: key(buffers[i])):
        buffer = buffers[index]
        near = is_placed & (lower < buffer.upper) & (upper > buffer.lower)
        blocks = sorted(
            (offsets[i], offsets[i] + buffers[i].size)
            for i in np.flatnonzero(near).tolist()
            if _meet(buffers[i], buffer)
        )
        offsets[index] = _free_offset(buffer, blocks, best_fit)
        is_placed[index] = buffer.size > 0
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
    """Whether two buffers that overlap in time do so outside of their gaps."""
    if len(a.spans) == len(b.spans) == 1:
        return True
    return any(s < v and u < t for s, t in a.spans for u, v in b.spans)
