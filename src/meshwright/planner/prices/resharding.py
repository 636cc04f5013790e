"""Seconds to bring values from one sharding to another, as a line over their bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from meshwright.machine import Mesh
from meshwright.machine.placement import Placement
from meshwright.partitioner.lower.reshard import reshard_steps
from meshwright.planner.prices.strategy import Cuts
from meshwright.planner.prices.value_roles import Role
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.program.ir import Sharding

Line = tuple[float, float]
"""Seconds for no bytes at all, and seconds for each byte."""

PART_S = 0.01
"""Times what it takes to read it that a device's own part of a value costs: readers take
it in passing, but between two plans it is better to have had only that part."""

type Step = tuple[float, float, float]
"""A line over the bytes of a whole value, and the share of them that what comes of it
takes beside it: none where devices have their parts already."""

type Steps = NDArray[np.float64]

type LineOf = Callable[[str, tuple[str, ...], Role], Line]
"""Of one collective, by kind, axes and what its value is to the step: its line over the
bytes of its larger side."""


def collective_lines(
    placement: Placement, beside: Collection[str], exposed: Mapping[Role, float]
) -> LineOf:
    """Those of a machine.

    beside: kinds that run beside computation. exposed: by the role of the value the share
        of their time that they add to a step.
    """
    chip = placement.machine.chip

    def line(kind: str, axes: tuple[str, ...], role: Role) -> Line:
        if kind == "all_slice":
            return 0.0, PART_S / chip.hbm_bytes_per_s
        seconds: Callable[..., float] = COLLECTIVE_S[kind]
        segments = placement.of(axes)
        start, end = seconds(0.0, segments), seconds(1e9, segments)
        share = exposed[role] if kind in beside else 1.0
        return share * start, share * (end - start) / 1e9

    return line


class ReshardingPrices:
    """Prices of collectives on one mesh, each asked for once."""

    def __init__(self, mesh: Mesh, line_of: LineOf) -> None:
        self.mesh = mesh
        self.line = cache(line_of)
        # Shardings are few, and are asked for again and again: by number.
        self._number: dict[Cuts, int] = {}
        self._known: dict[Role, Steps] = {}

    def seconds(
        self, kind: str, axes: Collection[str], num_bytes: float, role: Role
    ) -> float:
        """Of one collective."""
        if not axes:
            return 0.0
        start, per_byte = self.line(kind, tuple(axes), role)
        return start + per_byte * num_bytes

    def steps(self, haves: Sequence[Cuts], needs: Sequence[Cuts], role: Role) -> Steps:
        """From each of some shardings to each of others, [H, N, 3], as a `Step` has it."""
        numbers = [[self._number_of(cuts) for cuts in each] for each in (haves, needs)]
        known = self._room(role)
        found = known[np.ix_(*numbers)]
        for row, column in np.argwhere(np.isnan(found[:, :, 0])):
            step = self._find(haves[row], needs[column], role)
            found[row, column] = known[numbers[0][row], numbers[1][column]] = step
        return found

    def _number_of(self, cuts: Cuts) -> int:
        return self._number.setdefault(cuts, len(self._number))

    def _room(self, role: Role) -> Steps:
        """What is known so far, NaN for the rest, with room for all numbers."""
        known = self._known.get(role)
        size = len(self._number)
        if known is None or len(known) < size:
            larger = np.full((2 * size, 2 * size, 3), math.nan)
            if known is not None:
                larger[: len(known), : len(known)] = known
            known = self._known[role] = larger
        return known

    def _find(self, have: Cuts, need: Cuts, role: Role) -> Step:
        if have == need:
            return 0.0, 0.0, 0.0
        share = 1 / math.prod(self.mesh.size(axes) for axes in have)
        start = per_byte = copied = 0.0
        for step in reshard_steps(Sharding(have), Sharding(need)):
            parts = self.mesh.size(step.axes)
            if step.kind == "all_slice":
                share /= parts
            else:
                copied = 1 / math.prod(self.mesh.size(axes) for axes in need)
            if step.kind == "all_gather":
                share *= parts
            first, each = self.line(step.kind, step.axes, role)
            start, per_byte = start + first, per_byte + each * share
        return start, per_byte, copied
