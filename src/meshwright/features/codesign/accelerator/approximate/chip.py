"""Power, area and time of a chip some of whose arrays have approximate multipliers.

The chip is a design whose PEs are divided among the multipliers in use. Inputs stream, so
that layers of different inputs run on different arrays at once: the busiest group of arrays
sets the pace. Power is that of the exact chip's inputs per second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.features.codesign.accelerator.approximate.library import (
    EXACT_TRANSISTORS,
)
from meshwright.features.codesign.accelerator.approximate.multiplier import Multiplier
from meshwright.features.codesign.accelerator.approximate.products import NetworkProduct
from meshwright.features.codesign.accelerator.cost.figures import (
    MULTIPLY_PJ,
    PICOJOULE,
    scaled,
)
from meshwright.features.codesign.accelerator.design.design import Design
from meshwright.features.codesign.accelerator.mapping.mapper import map_to, require
from meshwright.features.codesign.accelerator.simulate.evaluate import evaluate

_FULL_ADDER, _FLIP_FLOP = 28, 24
_PE_TRANSISTORS = EXACT_TRANSISTORS + 32 * _FULL_ADDER + 56 * _FLIP_FLOP
MULTIPLIER_SHARE = EXACT_TRANSISTORS / _PE_TRANSISTORS
"""Share of an 8-bit multiplier in the area of its place in an array, 0.45: beside it are
the adder to a 32-bit sum, and registers of two weights, an activation and a sum (56 bits).
Counts of transistors by the rule of `library`."""


@dataclass(frozen=True, slots=True)
class ChipFigures:
    """Figures of a routed chip, as shares of the same chip with exact multipliers.

    arrays: by multiplier, how many of the chip's arrays have it.
    """

    power: float
    area: float
    time: float
    arrays: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RoutedChip:
    """A chip and the work that the products of a network are for it.

    energy_j, leakage_j, seconds: of one batch on the exact chip. loads: cycles of each
    product. multiply_j: of each product's multiplications.
    """

    design: Design
    energy_j: float
    leakage_j: float
    seconds: float
    loads: tuple[float, ...]
    multiply_j: tuple[float, ...]

    @classmethod
    def of(
        cls,
        design: Design,
        products: Sequence[NetworkProduct],
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> RoutedChip:
        """The work of `fn(*args)`, which has these products, on 8-bit arrays."""
        design = design.changed(number="int8")
        chip = design.chip
        whole = evaluate(design, fn, args)
        pj = scaled(MULTIPLY_PJ["int8"], chip.node_nm)
        mapped = [product.mapped for product in products]
        loads = [
            require(map_to(m, chip), p.name).cycles
            for m, p in zip(mapped, products, strict=True)
        ]
        return cls(
            design,
            whole.energy_j,
            whole.by_level["leakage"],
            whole.seconds,
            tuple(map(float, loads)),
            tuple(m.extents.multiply_adds * pj * PICOJOULE for m in mapped),
        )

    def figures(self, routing: Sequence[Multiplier]) -> ChipFigures:
        """The chip whose products are computed by these multipliers."""
        loads: dict[str, float] = {}
        kinds = {multiplier.name: multiplier for multiplier in routing}
        for multiplier, load in zip(routing, self.loads, strict=True):
            loads[multiplier.name] = loads.get(multiplier.name, 0.0) + load
        arrays = _divided(loads, self.design.chip.num_pes)
        num = self.design.chip.num_pes
        pace = max(
            loads[name] / count if count else float("inf")
            for name, count in arrays.items()
        )
        time = pace / (sum(self.loads) / num)
        time *= max(1.0, *(kinds[name].figures.delay for name in arrays))
        spared = sum(
            count / num * (1 - kinds[name].figures.area)
            for name, count in arrays.items()
        )
        array_mm2 = self.design.cost.area_mm2["arrays"] * MULTIPLIER_SHARE
        area = 1 - array_mm2 * spared / self.design.area_mm2
        saved_j = sum(
            j * (1 - multiplier.figures.power)
            for j, multiplier in zip(self.multiply_j, routing, strict=True)
        )
        leaked_j = self.leakage_j * (1 - area)
        power = 1 - (saved_j + leaked_j) / self.energy_j
        return ChipFigures(power, area, time, arrays)


def _divided(loads: Mapping[str, float], count: int) -> dict[str, int]:
    """Arrays for each load, so that the busiest group is as little busy as possible.

    A group without an array, where there are more loads than arrays, has 0.
    """
    given = dict.fromkeys(loads, 0)
    for _ in range(count):
        busiest = max(loads, key=lambda n: loads[n] / given[n] if given[n] else 1e300)
        given[busiest] += 1
    return given
