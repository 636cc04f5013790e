"""Bytes that a product reads again, since scratch memory holds only tiles of it.

The result is made tile by tile, and for each a stripe of either operand streams through:
the left one once for each column of tiles, the right one once for each row. Of the best
tiles that S elements of scratch memory hold, a product of m x k x n reads 2 mkn / sqrt(S)
(Hong and Kung, "I/O complexity: the red-blue pebble game", STOC 1981). What is fused into
it makes both worse: every array that an operand is computed from streams as often as the
operand, and every one read or written beside the result takes its part of the tile.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from meshwright.machine import Chip
from meshwright.predict.roofline.padding import product_extents, uses_matrix_unit
from meshwright.program.ir import Op

_HELD = 0.5
"""Of the memory of windows, for a tile of the result; the rest is for what streams. The
windows that libtpu 0.0.52 chooses for products alone leave it 0.3 to 0.7, docs/tpu.md."""

SUM_BYTES = 4
"""Of an element of a tile while it is summed up, in float32."""

_BUFFERS = 2
"""Windows of each array beside the result: one in use, one that comes or goes."""


class Streams(NamedTuple):
    """What a product reads and writes in main memory, by where it is needed.

    left, right: bytes of all arrays that an operand is computed from, of all products
        where there is a batch of them. beside: bytes for
    one element of the result, of what is written and of what is read to finish it.
    has_sums: whether 32 bits of it are written, so that sums need no place of their own.
    """

    left: int
    right: int
    beside: float
    has_sums: bool = False

    @property
    def held(self) -> float:
        """Bytes of scratch memory for one element of a tile."""
        sums = 0 if self.has_sums else SUM_BYTES
        return max(_BUFFERS * self.beside + sums, SUM_BYTES)


def reread_bytes(op: Op, streams: Streams, chip: Chip) -> float:
    """Bytes that a product moves beyond those of each array once.

    None where the smaller operand fits beside the tiles, or is on the chip, nor on a
    machine that does not say what memory it has for windows.
    """
    left, right = streams.left, streams.right
    room = _HELD * chip.window_bytes
    if not room or not uses_matrix_unit(op):
        return 0.0
    batch, rows, columns, _ = product_extents(op)
    if min(left, right) / batch <= room:  # one product after the other
        return 0.0
    tile = room / streams.held
    # Its sides are as the bytes that one more stripe along them costs.
    wide = math.sqrt(tile * left * columns / (right * rows))
    wide = min(max(wide, tile / rows), columns)
    high = min(tile / wide, rows)
    return left * (columns / wide - 1) + right * (rows / high - 1)
