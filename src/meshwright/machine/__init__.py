"""Machines, which are devices and the links between them, and meshes over devices.

`machine` takes the name of a preset or TOML file, and a number of chips. It returns a
`Machine`: one `Chip` in numbers, the `Level`s of links, and the grid of devices.
`placement.place_mesh` places the axes of a `Mesh` on that grid. `write` is the reverse
of `load`: it turns measurements into a chip, and a machine into TOML.

Begin with `machine.py`, then `chip.py`; `load.py` reads the TOML. `docs/extending.md`
says how to add a chip.
"""

from meshwright.machine.accelerator import Accelerator
from meshwright.machine.chip import Chip, Curve, Gpu
from meshwright.machine.load import load_machine, machine, parse_machine, preset_names
from meshwright.machine.machine import Dim, Kind, Level, Machine
from meshwright.machine.mesh import Mesh, parse_mesh

__all__ = [
    "Accelerator",
    "Chip",
    "Curve",
    "Dim",
    "Gpu",
    "Kind",
    "Level",
    "Machine",
    "Mesh",
    "load_machine",
    "machine",
    "parse_machine",
    "parse_mesh",
    "preset_names",
]
