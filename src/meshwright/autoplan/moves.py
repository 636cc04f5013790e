"""Seconds to bring values from one sharding to another, as a line over their bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from meshwright.autoplan.roles import Role
from meshwright.autoplan.strategy import Cuts
from meshwright.cost.collective import COLLECTIVE_S
from meshwright.ir import Sharding
from meshwright.lower.reshard import reshard_steps
from meshwright.machine import Mesh
from meshwright.machine.placement import Placement

Line = tuple[float, float]
"""Seconds for no bytes at all, and seconds for each byte."""


type LineOf = Callable[[str, tuple[str, ...], Role], Line]
"""Of one collective, by kind, axes and what its value is to the step: its line over the
bytes of its larger side."""


def lines_on(
    placement: Placement, beside: Collection[str], exposed: Mapping[Role, float]
) -> LineOf:
    """Those of a machine.

    beside: kinds that run beside computation. exposed: by the role of the value the share
        of their time that they add to a step.
    """

    def line(kind: str, axes: tuple[str, ...], role: Role) -> Line:
        seconds: Callable[..., float] = COLLECTIVE_S[kind]
        segments = placement.of(axes)
        start, end = seconds(0.0, segments), seconds(1e9, segments)
        share = exposed[role] if kind in beside else 1.0
        return share * start, share * (end - start) / 1e9

    return line


class Moves:
    """Prices of collectives on one mesh, each asked for once."""

    def __init__(self, mesh: Mesh, line_of: LineOf) -> None:
        self.mesh = mesh
        self.line = cache(line_of)
        self._moves: dict[tuple[Cuts, Cuts, Role], Line] = {}

    def seconds(
        self, kind: str, axes: Collection[str], num_bytes: float, role: Role
    ) -> float:
        """Of one collective."""
        if not axes:
            return 0.0
        start, per_byte = self.line(kind, tuple(axes), role)
        return start + per_byte * num_bytes

    def move(self, have: Cuts, need: Cuts, role: Role) -> Line:
        """Of all steps from one sharding to another, by the bytes of the whole value."""
        known = self._moves.get((have, need, role))
        if known is None:
            known = self._moves[have, need, role] = self._find(have, need, role)
        return known

    def _find(self, have: Cuts, need: Cuts, role: Role) -> Line:
        if have == need:
            return 0.0, 0.0
        share = 1 / math.prod(self.mesh.size(axes) for axes in have)
        start = per_byte = 0.0
        for step in reshard_steps(Sharding(have), Sharding(need)):
            parts = self.mesh.size(step.axes)
            if step.kind == "all_slice":
                share /= parts
                continue
            if step.kind == "all_gather":
                share *= parts
            first, each = self.line(step.kind, step.axes, role)
            start, per_byte = start + first, per_byte + each * share
        return start, per_byte

    def table(
        self,
        haves: Sequence[Cuts],
        needs: Sequence[Cuts],
        num_bytes: float,
        role: Role,
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Seconds from each of some shardings to each of others, [H, N]."""
        lines = np.array([[self.move(h, n, role) for n in needs] for h in haves])
        return lines[:, :, 0] + num_bytes * lines[:, :, 1]
