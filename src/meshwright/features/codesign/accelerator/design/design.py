"""A design: a name, and the numbers of `[accelerator]`; as TOML it is a machine."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from meshwright.errors import AcceleratorError, did_you_mean
from meshwright.features.codesign.accelerator.cost.chip_cost import ChipCost, chip_cost
from meshwright.machine import Accelerator, Chip, Kind, Level, Machine
from meshwright.machine.description import DescriptionReader
from meshwright.machine.machine import make_grid
from meshwright.machine.measured_chip import machine_toml
from meshwright.plain import read_text

_PRESETS = "meshwright.features.codesign.accelerator.presets"

ITEMSIZE = {"int8": 1, "bfloat16": 2, "float16": 2, "float32": 4}
"""Bytes of a number."""


_LINKS = Level("links", Kind.TORUS, (64,), 45e9, 1e-6, wraps_at=4)
"""Links between several chips of a design, an assumption: a ring as TPU v4i's."""


@dataclass(frozen=True)
class Design:
    """An accelerator by its numbers.

    sources: where a number comes from, by its path in the TOML.
    """

    name: str
    chip: Accelerator
    title: str = ""
    sources: dict[str, str] = field(
        default_factory=dict[str, str], compare=False, repr=False
    )

    @classmethod
    def load(cls, place: str | Path) -> Design:
        """A design from a TOML file with a table `[accelerator]`, or a preset by name.

        >>> Design.load("tpu-v3").chip.array
        (128, 128)
        """
        if not str(place).endswith(".toml"):
            if place not in design_names():
                hint = did_you_mean(str(place), design_names())
                raise AcceleratorError(
                    f"there is no design {str(place)!r:.60}{hint}; there are "
                    f"{', '.join(design_names())}, or give a file that ends in .toml"
                )
            file = resources.files(_PRESETS) / f"{place}.toml"
            return cls.parse(file.read_text(encoding="utf-8"), str(place))
        text = read_text(Path(place), AcceleratorError, "a design")
        return cls.parse(text, Path(place).stem)

    @classmethod
    def parse(cls, text: str, name: str) -> Design:
        """The design that a TOML text describes; `name` is used if it gives none."""
        try:
            table: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise AcceleratorError(f"design {name!r}: {error}") from None
        given = table.get("name", name)
        reader = DescriptionReader(str(given))
        chip = reader.read_accelerator(table)
        return cls(str(given), chip, str(table.get("title", "")), reader.sources)

    @cached_property
    def cost(self) -> ChipCost:
        """Area and power, part by part."""
        return chip_cost(self.chip)

    @property
    def area_mm2(self) -> float:
        """Area of the die."""
        return self.cost.total_mm2

    @property
    def tdp_w(self) -> float:
        """Power that the chip draws while all its parts are busy."""
        return self.cost.tdp_w

    def changed(self, **numbers: Any) -> Design:
        """The design with other numbers in `[accelerator]`, which have no sources."""
        gone = {f"accelerator.{name}" for name in numbers}
        kept = {path: text for path, text in self.sources.items() if path not in gone}
        return replace(self, chip=replace(self.chip, **numbers), sources=kept)

    def machine(self) -> Machine:
        """One such chip as a machine, whose `[chip]` follows from `[accelerator]`."""
        made, cost = self.chip, self.cost
        return Machine(
            name=self.name,
            title=self.title or self.name,
            compiler="plain",
            num_devices=1,
            levels=(_LINKS,),
            grid=make_grid(self.name, (_LINKS,), 1),
            chip=Chip(
                flops_per_s=_rates(made),
                vector_flops_per_s=made.vector_flops_per_s,
                hbm_bytes=made.dram_bytes,
                usable_bytes=made.dram_bytes,
                hbm_bytes_per_s=made.dram_bytes_per_s,
                on_chip_bytes=made.global_bytes or made.on_chip_bytes,
                launch_s=made.launch_s,
                unit=made.array,
                clock_hz=made.clock_hz,
                peak_w=cost.tdp_w,
                idle_w=cost.power_w["leakage"],
            ),
            accelerator=made,
            sources={
                path: self.sources[path] for path in self.sources if "accel" in path
            }
            | {"levels[0].link_bytes_per_s": "estimate: as TPU v4i"},
        )

    def to_toml(self) -> str:
        """The design as a machine's TOML, which every `--machine` option takes."""
        return machine_toml(self.machine())

    def save(self, path: str | Path) -> None:
        """Write `to_toml` to a file."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")


def _rates(chip: Accelerator) -> dict[str, float]:
    """Peak FLOP/s by dtype: wider numbers than the multipliers' take several passes."""
    return {
        number: chip.flops_per_s / max(1.0, width / ITEMSIZE[chip.number]) ** 2
        for number, width in ITEMSIZE.items()
    }


def design_names() -> tuple[str, ...]:
    """Sorted names of the designs that Meshwright has."""
    names = (each.name for each in resources.files(_PRESETS).iterdir())
    return tuple(sorted(n.removesuffix(".toml") for n in names if n.endswith(".toml")))
