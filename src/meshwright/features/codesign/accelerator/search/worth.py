"""The worth of a design: examples a second and watt, against a baseline design."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.errors import AcceleratorError
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.search.programs import TracedTargets
from meshwright.features.codesign.accelerator.search.space import design_of
from meshwright.features.codesign.accelerator.simulate.evaluate import evaluate_workload

OBJECTIVES: Mapping[str, tuple[str, ...]] = {
    "perf/tdp": ("perf_per_tdp", "max"),
    "perf": ("perf", "max"),
    "energy": ("energy_j", "min"),
    "area": ("area_mm2", "min"),
}
"""Objectives by their names on the command line: a figure, and its direction."""

_BATCHES = (1, 8, 64, 256)
"""Batches of which each program gets the one with which a design is fastest: on the
baseline, and on candidates for several programs, whose native batch is not searched."""


@dataclass(slots=True)
class Worth:
    """Figures of candidates, for a search by trials.

    base: the design to which figures are relative. is_fused: whether values may stay on
        the chip. area_mm2, tdp_w: caps; a design beyond them is not simulated.
    """

    programs: TracedTargets
    base: Design
    area_mm2: float = math.inf
    tdp_w: float = math.inf
    is_fused: bool = True
    base_rates: tuple[float, ...] = field(default=())

    @property
    def identity(self) -> dict[str, Any]:
        """The conditions of the figures, besides the candidate and the caps."""
        return {
            "programs": self.programs.digests(),
            "baseline": self.base.to_toml(),
            "is_fused": self.is_fused,
        }

    def __call__(self, candidate: Mapping[str, Any]) -> dict[str, float]:
        """The figures of a candidate; those of a design beyond a cap are the worst."""
        return self.of(design_of(candidate, self.base))

    def is_within(self, candidate: Mapping[str, Any]) -> bool:
        """Whether a candidate keeps the caps."""
        return self._keeps_caps(design_of(candidate, self.base))

    def _keeps_caps(self, design: Design) -> bool:
        return design.area_mm2 <= self.area_mm2 and design.tdp_w <= self.tdp_w

    def of(self, design: Design) -> dict[str, float]:
        """The figures of a design.

        perf is the geometric mean over the programs of examples a second, relative to the
        baseline; perf_per_tdp relates it to the peak power of both.
        """
        area, tdp = design.area_mm2, design.tdp_w
        if not self._keeps_caps(design):
            return _figures(0.0, 0.0, math.inf, area, tdp)
        rates, joules, _ = self._rates(design, self._batches(design))
        gains = [r / b for r, b in zip(rates, self.rate_base(), strict=True)]
        perf = math.exp(math.fsum(map(math.log, gains)) / len(gains))
        return _figures(perf, perf * self.base.tdp_w / tdp, joules, area, tdp)

    def rate_base(self) -> tuple[float, ...]:
        """Examples a second of each program on the baseline; fails if it cannot run one."""
        if not self.base_rates:
            own = (self.base.chip.batch,)
            batches = _BATCHES if self.programs.has_batch else own
            self.base_rates, _, _ = self._rates(self.base, batches)
        return self.base_rates

    @property
    def has_native_batch(self) -> bool:
        """Whether a design's own batch counts: that of one program, if it is free."""
        return self.programs.has_batch and len(self.programs.targets) == 1

    def best_batches(self, design: Design) -> tuple[int, ...]:
        """The batch of each program with which a design is fastest."""
        _, _, found = self._rates(design, self._batches(design))
        return found

    def _batches(self, design: Design) -> tuple[int, ...]:
        is_free = self.programs.has_batch and not self.has_native_batch
        return _BATCHES if is_free else (design.chip.batch,)

    def _rates(
        self, design: Design, batches: tuple[int, ...]
    ) -> tuple[tuple[float, ...], float, tuple[int, ...]]:
        """Examples a second of each program at its best batch, joules an example, batches.

        A batch that a design cannot run is left out. If it can run none, it fails with what
        the first one lacks.
        """
        has_batch = self.programs.has_batch
        best: list[tuple[float, float, int]] = []
        for number in range(len(self.programs.targets)):
            found: list[tuple[float, float, int]] = []
            errors: list[AcceleratorError] = []
            for batch in batches:
                workload = self.programs.at(batch)[number]
                try:
                    one = evaluate_workload(design, workload, is_fused=self.is_fused)
                except AcceleratorError as error:
                    errors.append(error)
                    continue
                examples = batch if has_batch else 1
                found.append((examples / one.seconds, one.energy_j / examples, batch))
            if not found:
                raise errors[0]
            best.append(max(found, key=lambda each: (each[0], -each[1])))
        rates, joules, chosen = zip(*best, strict=True)
        return rates, math.fsum(joules) / len(joules), chosen


def _figures(
    perf: float, per_tdp: float, joules: float, area: float, tdp: float
) -> dict[str, float]:
    return {
        "perf": perf,
        "perf_per_tdp": per_tdp,
        "energy_j": min(joules, 1e30),
        "area_mm2": area,
        "tdp_w": tdp,
    }


def objective_of(name: str) -> dict[str, str]:
    """The objective of a search by its name on the command line."""
    if name not in OBJECTIVES:
        allowed = ", ".join(OBJECTIVES)
        raise AcceleratorError(f"--objective is {name!r}; wanted one of {allowed}")
    figure, way = OBJECTIVES[name]
    return {figure: way}
