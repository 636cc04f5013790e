"""The tilings (choices of tile sizes) of a kernel that are worth compiling.

Vectors lie along the loop of the result's last dim, and along one more of its loops.
Where IREE does not peel loops (compile the remainder of a loop apart), tile sizes
divide each other, so that there is no remainder.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from meshwright.features.tune.iree.kernel import CpuKernel
from meshwright.features.tune.iree.tiling import Tiling

_LANES = (4, 8, 16, 32, 64)
_ROWS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16)
_DEPTHS = (1, 2, 4, 8, 16, 32, 64)
_MAX_RESULT = 512
"""Largest number of result elements that the innermost body keeps in vectors.

They fill 64 registers of 256 bits in float32; more are spilled to memory.
"""
_MAX_VECTOR_BYTES = 16384
"""Bytes of all products in the innermost body at which IREE refuses to compile."""
_MAX_DISTRIBUTIONS = 7
"""Largest number of workgroup sizes that are tried per loop."""


@dataclass(frozen=True, slots=True)
class TileSpace:
    """All tilings of one kernel.

    vectors: possible pairs of (vector sizes per loop, reduction tile sizes per loop).
    """

    kernel: CpuKernel
    vectors: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @classmethod
    def of(cls, kernel: CpuKernel) -> TileSpace:
        element_bytes = kernel.operands[-1].element_bytes
        pairs = itertools.product(_vectors(kernel), _reductions(kernel))
        small = [
            (vector, reduction)
            for vector, reduction in pairs
            if _product(vector) * _product(reduction) * element_bytes
            < _MAX_VECTOR_BYTES
        ]
        return cls(kernel, tuple(small))

    def __len__(self) -> int:
        return sum(
            math.prod(map(len, self._distributions(vector)))
            for vector, _ in self.vectors
        )

    def __iter__(self) -> Iterator[Tiling]:
        for vector, reduction in self.vectors:
            for sizes in itertools.product(*self._distributions(vector)):
                yield Tiling(sizes, vector, reduction)

    def sample(self, count: int, seed: int) -> list[Tiling]:
        """Up to `count` different tilings in random order."""
        draw = random.Random(seed)
        if len(self) <= 2 * count:
            every = list(self)
            draw.shuffle(every)
            return every[:count]
        tilings: dict[Tiling, None] = {}
        while len(tilings) < count:
            vector, reduction = draw.choice(self.vectors)
            sizes = tuple(map(draw.choice, self._distributions(vector)))
            tilings[Tiling(sizes, vector, reduction)] = None
        return list(tilings)

    def neighbours(self, tiling: Tiling) -> list[Tiling]:
        """Tilings that differ in a workgroup's size along one loop, or in vector sizes."""
        options = self._distributions(tiling.parallel)
        tilings: list[Tiling] = []
        for loop, sizes in enumerate(options):
            for size in sizes:
                moved = list(tiling.distribution)
                moved[loop] = size
                tilings.append(replace(tiling, distribution=tuple(moved)))
        for vector, reduction in self.vectors:
            if (vector == tiling.parallel) != (reduction == tiling.reduction):
                sizes = tuple(
                    min(
                        fitting,
                        key=lambda size, old=old: abs(
                            math.log((size or 1) / (old or 1))
                        ),
                    )
                    for fitting, old in zip(
                        self._distributions(vector), tiling.distribution, strict=True
                    )
                )
                tilings.append(Tiling(sizes, vector, reduction))
        return [each for each in dict.fromkeys(tilings) if each != tiling]

    def _distributions(self, vector: Sequence[int]) -> list[Sequence[int]]:
        """Candidate workgroup tile sizes for given vector tile sizes, one list per loop."""
        peels = is_peeled(self.kernel)
        return [
            (0,) if loop.is_reduction else _workgroup_sizes(loop.size, size, peels)
            for loop, size in zip(self.kernel.loops, vector, strict=True)
        ]


def is_peeled(kernel: CpuKernel) -> bool:
    """Whether IREE peels off the remainder of a loop that its tile does not divide."""
    return "enable_loop_peeling" in kernel.pipeline


def lane_loop(kernel: CpuKernel) -> int:
    """The loop along which vectors lie: that of the result's last dim longer than 1."""
    result = kernel.operands[-1]
    loops = [dim[0][0] for dim in result.index]
    long = [loop for loop in loops if kernel.loops[loop].size > 1]
    return (long or loops)[-1]


def window_loops(kernel: CpuKernel) -> frozenset[int]:
    """Loops that address a dim of an operand together with another loop.

    A convolution's window does so: `d1 * 2 + d4` is a position in the image.
    """
    return frozenset(
        loop
        for operand in kernel.operands
        for dim in operand.index
        for loop, _ in dim
        if len(dim) > 1
    )


def row_loops(kernel: CpuKernel) -> list[int]:
    """Loops of the result that reuse an operand: a matmul's rows, a convolution's pixels.

    They differ from the loop of the vector's lanes, and address no operand together
    with it. A loop that both operands have is a batch loop and is left out.
    """
    first, second, result = (
        {loop for dim in operand.index for loop, _ in dim}
        for operand in kernel.operands
    )
    batches = first & second
    lane = lane_loop(kernel)
    windows = window_loops(kernel)
    return [
        loop
        for loop in sorted(result - batches - {lane})
        if not windows or loop in windows
    ]


def _vectors(kernel: CpuKernel) -> Iterator[tuple[int, ...]]:
    """Candidate vector sizes of the result, one per loop; 0 for summed loops."""
    lane, peels = lane_loop(kernel), is_peeled(kernel)
    ones = [0 if loop.is_reduction else 1 for loop in kernel.loops]
    vectors: set[tuple[int, ...]] = set()
    for row in row_loops(kernel) or [lane]:
        for lanes, rows in itertools.product(_LANES, _ROWS):
            sizes = list(ones)
            sizes[row] = rows
            sizes[lane] = lanes
            fits = all(
                size <= loop.size and (peels or loop.size % size == 0)
                for loop, size in zip(kernel.loops, sizes, strict=True)
                if size > 1
            )
            if fits and _product(sizes) <= _MAX_RESULT:
                vectors.add(tuple(sizes))
    yield from sorted(vectors or {tuple(ones)})


def _reductions(kernel: CpuKernel) -> Iterator[tuple[int, ...]]:
    """Possible tile sizes of the summed loops, one per loop.

    They are 1 for a convolution's window, and more along the innermost channel.
    """
    windows, peels = window_loops(kernel), is_peeled(kernel)
    sums = [i for i, loop in enumerate(kernel.loops) if loop.is_reduction]
    channels = [i for i in sums if i not in windows]
    inner = (channels or sums)[-1]
    depths = _DEPTHS if channels else (1, kernel.loops[inner].size)
    for depth in dict.fromkeys(depths):
        size = kernel.loops[inner].size
        if depth == 1 or (depth <= size and (peels or size % depth == 0)):
            yield tuple(
                (depth if i == inner else 1) if loop.is_reduction else 0
                for i, loop in enumerate(kernel.loops)
            )


def _workgroup_sizes(size: int, vector: int, peels: bool) -> Sequence[int]:
    """Possible sizes of a workgroup along one loop, from one vector to the whole loop."""
    if peels:
        doubled = {vector << power for power in range(12)}
        sizes = sorted({d for d in doubled if d < size} | {size})
    else:
        sizes = [d for d in range(1, size + 1) if size % d == 0 and d % vector == 0]
    if len(sizes) <= _MAX_DISTRIBUTIONS:
        return sizes
    last = len(sizes) - 1
    places = {
        round(i * last / (_MAX_DISTRIBUTIONS - 1)) for i in range(_MAX_DISTRIBUTIONS)
    }
    return [sizes[place] for place in sorted(places)]


def _product(sizes: Sequence[int]) -> int:
    return math.prod(size for size in sizes if size)
