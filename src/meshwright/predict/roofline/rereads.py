"""Bytes that a tiled product reads more than once, since scratch memory holds one tile.

The result is computed tile by tile, and for each tile a stripe of either operand streams
through scratch memory: the left operand once for each column of tiles, the right one once
for each row. With the best tiles for S elements of scratch memory, a product of
m x k x n reads 2 mkn / sqrt(S) elements (Hong and Kung, "I/O complexity: the red-blue
pebble game", STOC 1981). Fusion adds to both terms: every array from which an operand is
computed streams as often as the operand, and every array of the epilogue, which is read or
written with the result, takes its part of the tile.
"""

import math
from typing import NamedTuple

from meshwright.machine import Chip
from meshwright.predict.roofline.matrix_unit import product_extents, uses_matrix_unit
from meshwright.program.ir import Op

_TILE_SHARE = 0.5
"""Share of window memory for a tile of the result; the rest holds stripes of the
operands. The windows that libtpu 0.0.52 chooses for products alone leave 0.3 to 0.7 of
it to the tile (docs/tpu.md)."""

SUM_BYTES = 4
"""Bytes of an element of a tile while it is summed, in float32."""

_BUFFERS = 2
"""Number of windows per array of the epilogue: one in use, one in transfer."""


class Streams(NamedTuple):
    """Bytes that a product reads and writes in main memory, by where they are needed.

    left, right: bytes of all arrays from which an operand is computed; for a batch of
        products, of all products.
    epilogue: bytes per element of the result, written or read to finish it.
    has_sums: whether the result is written in 32 bits, so that sums need no buffer of
        their own.
    """

    left: int
    right: int
    epilogue: float
    has_sums: bool = False

    @property
    def tile_bytes(self) -> float:
        """Bytes of scratch memory per element of a tile."""
        sums = 0 if self.has_sums else SUM_BYTES
        return max(_BUFFERS * self.epilogue + sums, SUM_BYTES)


def reread_bytes(op: Op, streams: Streams, chip: Chip) -> float:
    """Bytes that a product moves beyond reading and writing each of its arrays once.

    0 if the smaller operand fits next to the tiles or is already in scratch memory, or
    if the machine does not state its window memory.
    """
    left, right = streams.left, streams.right
    room = _TILE_SHARE * chip.window_bytes
    if not room or not uses_matrix_unit(op):
        return 0.0
    batch, rows, columns, _ = product_extents(op)
    if min(left, right) / batch <= room:  # one product after the other
        return 0.0
    tile = room / streams.tile_bytes
    # The sides of the best tile are in the ratio of what one more stripe costs.
    wide = math.sqrt(tile * left * columns / (right * rows))
    wide = min(max(wide, tile / rows), columns)
    high = min(tile / wide, rows)
    return left * (columns / wide - 1) + right * (rows / high - 1)
