"""Generated allocation problems with a known packing: cut rectangles."""

from random import Random

from meshwright.features.allocate import Buffer

_GRAIN = 64


def known_packing(
    num_buffers: int, seed: int
) -> tuple[tuple[Buffer, ...], tuple[int, ...], int]:
    """Buffers, offsets of a packing of them, and its capacity.

    The rectangle of all times and bytes is cut in two, at random and the largest piece
    first, until there are enough pieces. A tenth of the pieces is then shrunk, a tenth
    gets a gap of one time, some are aligned, and a twentieth is fixed.
    The order of the buffers is random.
    """
    rng = Random(seed)
    capacity = _GRAIN * rng.choice((256, 1024, 4096))
    pieces = _cut(rng, 4 * num_buffers, capacity // _GRAIN, num_buffers)
    buffers: list[Buffer] = []
    offsets: list[int] = []
    for index, (start, end, low, high) in enumerate(pieces):
        offset, size = low * _GRAIN, (high - low) * _GRAIN
        draw = rng.random()
        gaps: tuple[tuple[int, int], ...] = ()
        if draw < 0.1:
            size -= rng.randrange(size // 2 + 1)
        elif draw < 0.2 and end - start > 3:
            middle = rng.randrange(start + 1, end - 1)
            gaps = ((middle, middle + 1),)
        alignment = _GRAIN if rng.random() < 0.1 else 1
        while rng.random() < 0.3 and offset and offset % (2 * alignment) == 0:
            alignment *= 2
        fixed = offset if rng.random() < 0.05 else None
        buffers.append(Buffer(f"b{index}", start, end, size, alignment, fixed, gaps))
        offsets.append(offset)
    order = list(range(len(buffers)))
    rng.shuffle(order)
    return (
        tuple(buffers[i] for i in order),
        tuple(offsets[i] for i in order),
        capacity,
    )


def _cut(
    rng: Random, times: int, units: int, num_pieces: int
) -> list[tuple[int, int, int, int]]:
    """Pieces (start, end, low, high) of the rectangle, which they fill."""
    pieces = [(0, times, 0, units)]
    while len(pieces) < num_pieces:
        pieces.sort(key=lambda p: (p[1] - p[0]) / times * (p[3] - p[2]) / units)
        start, end, low, high = pieces.pop()
        wide, tall = (end - start) / times, (high - low) / units
        if end - start > 1 and (high - low < 2 or rng.random() < wide / (wide + tall)):
            cut = rng.randrange(start + 1, end)
            pieces += [(start, cut, low, high), (cut, end, low, high)]
        elif high - low > 1:
            cut = rng.randrange(low + 1, high)
            pieces += [(start, end, low, cut), (start, end, cut, high)]
        else:
            pieces.append((start, end, low, high))
            break
    return pieces
