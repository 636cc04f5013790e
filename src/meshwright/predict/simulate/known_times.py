"""Seconds of kernels and collectives, memoised by their work and traffic.

Layers of one model have kernels in common, so that most seconds are computed once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from meshwright.machine.placement import Placement
from meshwright.predict.compilers.hlo.kernels import Kernel
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.predict.roofline.bound import KernelTime
from meshwright.predict.roofline.kernel_time import KernelTraffic, kernel_time
from meshwright.program.ir import Op


class KnownTimes:
    """Times that were computed so far, on one placement."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._kernels: dict[Hashable, KernelTime] = {}
        self._collectives: dict[Hashable, float] = {}

    def kernel_time(self, each: Kernel, traffic: KernelTraffic) -> KernelTime:
        """The time of a kernel that is no collective, and what bounds it."""
        key = each.work, traffic
        known = self._kernels.get(key)
        if known is None:
            chip, fusion = self.placement.machine.chip, each.fusion
            known = kernel_time(fusion.root, fusion.work, traffic, chip)
            self._kernels[key] = known
        return known

    def collective_s(self, op: Op, num_bytes: float) -> float:
        """Seconds of a collective; `num_bytes` of its whole value on one device."""
        params: Mapping[str, Any] = op.params
        axes = tuple(params["axes"])
        key = op.kind, axes, num_bytes
        known = self._collectives.get(key)
        if known is None:
            known = COLLECTIVE_S[op.kind](num_bytes, self.placement.of(axes))
            self._collectives[key] = known
        return known
