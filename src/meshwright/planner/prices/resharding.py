"""Seconds of collectives, and of resharding values, as linear functions of bytes."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import numpy as np

from meshwright.machine import Mesh
from meshwright.machine.placement import Placement
from meshwright.partitioner.lower.reshard import reshard_steps
from meshwright.planner.prices.value_roles import Role
from meshwright.planner.strategies.strategy import DimAxes
from meshwright.predict.compilers.model.compilation import Compiler
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.program.ir import Sharding
from meshwright.search.arrays import Floats

Line = tuple[float, float]
"""Seconds for zero bytes (latency), and seconds per byte."""

SLICE_SHARE = 0.01
"""Price of an all_slice, relative to reading the part from memory.

The slice is fused into its readers and is nearly free. The price makes the plan without
the slice the better one of two plans that are otherwise equal.
"""

type ReshardingLine = tuple[float, float, float]
"""A `Line` over the bytes of the whole value, and the share of them that a copy takes.

The copy is the resharded value in a device's memory; its share is 0 if the device only
slices what it has.
"""

type CollectiveLine = Callable[[str, tuple[str, ...], Role], Line]
"""A function that prices a collective, as a `Line` over its bytes.

Its arguments are the collective's kind, its mesh axes and the role of its value
(weight, gradient, ...). The bytes are those of the operand or the result, whichever are
more.
"""


def collective_lines(
    placement: Placement, compiler: Compiler, exposed: Mapping[Role, float]
) -> CollectiveLine:
    """The function that prices collectives on a machine's links.

    A collective that the compiler combines with others pays for its share of their
    latency, by bytes. One that the next op waits for starts alone: combined collectives
    wait for each other only if nothing needs their results before.
    exposed: for each role of a value, the share of such a collective's time that a step
        waits for.
    """
    chip = placement.machine.chip

    def line(kind: str, axes: tuple[str, ...], role: Role) -> Line:
        if kind == "all_slice":
            return 0.0, SLICE_SHARE / chip.hbm_bytes_per_s
        seconds: Callable[..., float] = COLLECTIVE_S[kind]
        segments = placement.of(axes)
        share = exposed[role] if kind in compiler.async_collectives else 1.0
        if kind in compiler.combined and role is not Role.OTHER:
            together = compiler.combined_bytes
            return 0.0, share * seconds(together, segments) / together
        start, end = seconds(0.0, segments), seconds(1e9, segments)
        return share * start, share * (end - start) / 1e9

    return line


class ReshardingPrices:
    """Predicted seconds of collectives and resharding on a mesh, computed once."""

    def __init__(self, mesh: Mesh, line_of: CollectiveLine) -> None:
        self.mesh = mesh
        self.line = cache(line_of)
        self._line_between = cache(self._line)

    def seconds(
        self, kind: str, axes: Collection[str], num_bytes: float, role: Role
    ) -> float:
        """Seconds of one collective of `num_bytes` along `axes`; 0 without axes."""
        if not axes:
            return 0.0
        start, per_byte = self.line(kind, tuple(axes), role)
        return start + per_byte * num_bytes

    def lines(
        self, sources: Sequence[DimAxes], targets: Sequence[DimAxes], role: Role
    ) -> Floats:
        """Resharding prices from each source sharding to each target, [S, T, 3].

        Each is a `ReshardingLine`: latency, seconds per byte, and share of the copy.
        """
        between = self._line_between
        return np.array([[between(s, t, role) for t in targets] for s in sources])

    def _line(self, source: DimAxes, target: DimAxes, role: Role) -> ReshardingLine:
        if source == target:
            return 0.0, 0.0, 0.0
        share = 1 / math.prod(self.mesh.size(axes) for axes in source)
        start = per_byte = copied = 0.0
        for step in reshard_steps(Sharding(source), Sharding(target)):
            parts = self.mesh.size(step.axes)
            if step.kind == "all_slice":
                share /= parts
            else:
                copied = 1 / math.prod(self.mesh.size(axes) for axes in target)
            if step.kind == "all_gather":
                share *= parts
            first, each = self.line(step.kind, step.axes, role)
            start, per_byte = start + first, per_byte + each * share
        return start, per_byte, copied
