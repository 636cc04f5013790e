"""Reduce-scatters over all chips of a slice, which the TPU compiler runs together.

XLA: `ReduceScatterDecomposer` and `AllReduceCombiner`. On most slices the TPU compiler has
no reduce-scatter over all chips. It sums with an all-reduce, which runs along all dims of
the torus at once, and combines such all-reduces. So the addends of many gradients are
live until the last of them is computed. (Seconds are still those of a reduce-scatter.)
"""

import math
from dataclasses import dataclass, replace

from meshwright.machine import Machine
from meshwright.predict.compilers.model.compilation import Compilation
from meshwright.predict.compilers.xla.collective_combiner import combine_collectives
from meshwright.program.ir import Op

_COMBINED_BYTES = 120 * 2**20
"""Most bytes of all-reduces that run as one: 120 of 1 MiB do, and 30 of 4 MiB (libtpu
0.0.50)."""

_LEAST_DEVICES = 5
"""Number of devices from which a torus counts: 2x2 keeps its reduce-scatters."""

_KEEPING = frozenset({"tpu7x"})
"""Topologies whose reduce-scatters over a whole slice stay (libtpu 0.0.50)."""


@dataclass(frozen=True, slots=True)
class ReductionCombiner:
    """The pass that joins reduce-scatters over all devices of a slice.

    num_devices: number of devices in the slice; 0 to join none.
    """

    num_devices: int

    def __call__(self, compilation: Compilation) -> Compilation:
        """The compilation with such reduce-scatters launched together."""
        joined = combine_collectives(
            compilation.fusions, self._is_over_all, _COMBINED_BYTES
        )
        return replace(compilation, fusions=joined)

    def _is_over_all(self, op: Op) -> bool:
        if op.kind != "reduce_scatter":
            return False
        whole, part = math.prod(op.operands[0].shape), math.prod(op.results[0].shape)
        return whole == self.num_devices * part


def combiner_for(machine: Machine) -> ReductionCombiner:
    """The pass for a machine of one slice.

    Compiled by libtpu 0.0.50: reduce-scatters over a whole slice become all-reduces on
    4x4, 8x8, 16x16, 2x2x2, 2x2x4, 2x2x8, 2x4x4, 4x4x4, 4x4x8 and 8x8x8 chips of v4, v5e,
    v5p and v6e. They stay on 2x2, 2x4, 4x8, 4x16, 8x16 and 2x4x8: two dims have to be
    equal. On v2 and v3 they become all-reduces on 2x2 chips as well, of two cores each.
    """
    dims = [dim for dim in machine.grid if dim.extent > 1]
    extents = [dim.extent for dim in dims]
    if extents and machine.devices_per_chip > 1:
        extents = [*extents[:-1], extents[-1] // machine.devices_per_chip]
    has_equal = len(set(extents)) < len(extents)
    is_slice = all(dim.level is machine.levels[0] for dim in dims)
    is_large = machine.num_devices >= _LEAST_DEVICES
    keeps = machine.topology in _KEEPING or not (has_equal and is_slice and is_large)
    return ReductionCombiner(0 if keeps else machine.num_devices)
