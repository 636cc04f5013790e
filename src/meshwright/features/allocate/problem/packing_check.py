"""An independent check of offsets, pair by pair, that shares no code with the search."""

from collections.abc import Iterator, Sequence

import numpy as np

from meshwright.features.allocate.problem.buffer import Buffer


def faults(
    buffers: Sequence[Buffer], offsets: Sequence[int], capacity: int | None = None
) -> Iterator[str]:
    """Sentences that say what is wrong with offsets; none if they are a packing.

    >>> list(faults([Buffer("a", 0, 2, 4), Buffer("b", 1, 3, 4)], [0, 2]))
    ["buffers 'a' and 'b' are live together and share bytes 2 to 3"]
    """
    if len(buffers) != len(offsets):
        yield f"{len(offsets)} offsets for {len(buffers)} buffers"
        return
    for buffer, offset in zip(buffers, offsets, strict=True):
        if offset < 0 or offset % buffer.alignment:
            yield (
                f"buffer {buffer.id!r} at {offset} is not aligned to {buffer.alignment}"
            )
        if buffer.offset not in (None, offset):
            yield f"buffer {buffer.id!r} lies at {offset}, but is fixed at {buffer.offset}"
        if capacity is not None and offset + buffer.size > capacity:
            yield (
                f"buffer {buffer.id!r} ends at {offset + buffer.size}, above the "
                f"capacity {capacity}"
            )
    low, high = np.array(offsets), np.array(offsets)
    high = high + np.array([b.size for b in buffers], np.int64)
    start, end = (
        np.array([getattr(b, e) for b in buffers]) for e in ("lower", "upper")
    )
    for index, (a, x) in enumerate(zip(buffers, offsets, strict=True)):
        near = (low[:index] < x + a.size) & (high[:index] > x)
        near &= (start[:index] < a.upper) & (end[:index] > a.lower)
        for other in np.flatnonzero(near).tolist():
            b, y = buffers[other], offsets[other]
            first, last = max(x, y), min(x + a.size, y + b.size)
            if first < last and _meet(a, b):
                yield (
                    f"buffers {b.id!r} and {a.id!r} are live together and share bytes "
                    f"{first} to {last - 1}"
                )


def _meet(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers occupy memory at the same time."""
    return any(s < v and u < t for s, t in a.spans for u, v in b.spans)
