"""Seconds of units and collectives, each distinct one reckoned once.

A program of many layers asks for the same product again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from meshwright.cost.bound import UnitTime
from meshwright.cost.collective import COLLECTIVE_S
from meshwright.cost.operation import Traffic, alike, unit_time
from meshwright.ir import Op
from meshwright.machine.placement import Placement
from meshwright.simulate.unit import Unit


class Prices:
    """What has been reckoned so far for one placement."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._units: dict[Hashable, UnitTime] = {}
        self._collectives: dict[Hashable, float] = {}

    def unit_time(self, unit: Unit, num_bytes: int, elements: int) -> UnitTime:
        """The time of a unit that is no collective, and what bounds it; see `Traffic`."""
        work = unit.work
        root = alike(unit.root)
        key = root, work.flops, work.transcendentals, num_bytes, elements
        known = self._units.get(key)
        if known is None:
            chip = self.placement.machine.chip
            traffic = Traffic(num_bytes, elements)
            known = self._units[key] = unit_time(unit.root, work, traffic, chip)
        return known

    def collective_s(self, op: Op, num_bytes: float) -> float:
        """Seconds of a collective whose whole value has so many bytes on one device."""
        params: Mapping[str, Any] = op.params
        axes = tuple(params["axes"])
        key = op.kind, axes, num_bytes
        known = self._collectives.get(key)
        if known is None:
            seconds: Callable[..., float] = COLLECTIVE_S[op.kind]
            known = seconds(num_bytes, self.placement.of(axes))
            self._collectives[key] = known
        return known
