"""Seconds of a matrix product whose tiles are shared out among the cores of a chip.

A library computes a tile of the result on each core at a time, so that a product takes as
many rounds ("waves") as its tiles fill the cores, the last of them perhaps in part. A core
reads stripes of both operands from the last cache, which limits small tiles. If there are
fewer tiles than cores, the summed dim is cut as well, and the parts are added.

NVIDIA, "Matrix Multiplication Background User's Guide" (2023), explains both effects.
"""

from functools import lru_cache
from typing import NamedTuple

_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
"""Rows and columns of the tiles that a library offers: six of the eight of that guide."""

_SHORTEST_SUM = 256
"""Least extent of the summed dim in one part of a product that is cut along it."""

_SUM_BYTES = 4
"""Bytes of an element of a part's result, which is added to the other parts."""

_FILL_S = 3.0e-6
"""Seconds at the start and the end of a product in which the cores only load and store.

Of 1, 2, 3 and 4 us, 3 and 4 agree best with the products below 0.01 TFLOP that Vidur
measured on A100 and H100 (Agrawal et al., MLSys 2024); with 3, the smallest are still
predicted a quarter too fast."""


PRODUCT_EDGE = 96
"""Extent of the summed dim in the time of which a core loads the first stripes of a tile
and stores the finished one, without computing.

Of 0, 32, 64, 96 and 128, 96 agrees best with the products of fewer than 1,024 summed
elements and at least 2,048 rows that Vidur measured on A100 (64 on H100): they come out 1 %
too slow there and 4 % on H100, and without it 15 and 6 % too fast. Of implicit products of
convolutions nothing is known."""


class Cores(NamedTuple):
    """The cores of a chip, for products of one dtype.

    flops_per_s: peak of all cores together.
    read_bytes_per_s: rate at which one core reads the last cache; 0 for no limit.
    """

    num_cores: int
    flops_per_s: float
    read_bytes_per_s: float


@lru_cache(maxsize=4096)
def tiled_product_s(
    extents: tuple[int, int, int, int], itemsize: int, cores: Cores, edge: int = 0
) -> float:
    """Seconds of a product, with the tiles that are fastest for it.

    extents: of batch, rows, columns and summed dim.
    itemsize: bytes of an element of the operands.
    edge: extent of the summed dim in the time of which a tile starts and ends.
    """
    return min(_tiles_s(extents, itemsize, cores, edge, *tile) for tile in _TILES)


def _tiles_s(
    extents: tuple[int, int, int, int],
    itemsize: int,
    cores: Cores,
    edge: int,
    high: int,
    wide: int,
) -> float:
    """Seconds of a product with tiles of `high` rows and `wide` columns."""
    batch, rows, columns, summed = extents
    num_tiles = batch * -(-rows // high) * -(-columns // wide)
    step_s = 2 * high * wide * cores.num_cores / cores.flops_per_s
    if cores.read_bytes_per_s:
        step_s = max(step_s, (high + wide) * itemsize / cores.read_bytes_per_s)
    if num_tiles >= cores.num_cores:
        waves = -(-num_tiles // cores.num_cores)
        return _FILL_S + waves * step_s * (summed + edge)
    parts = max(1, min(cores.num_cores // num_tiles, summed // _SHORTEST_SUM))
    sum_s = 0.0
    if parts > 1 and cores.read_bytes_per_s:
        sum_s = parts * high * wide * _SUM_BYTES / cores.read_bytes_per_s
    return _FILL_S + step_s * (summed / parts + edge) + sum_s
