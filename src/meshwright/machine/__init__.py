"""Machines and meshes."""

from meshwright.machine.chip import Chip, Curve
from meshwright.machine.fabric import Dim, Kind, Level
from meshwright.machine.gpu import Gpu
from meshwright.machine.load import load_machine, machine, parse_machine, preset_names
from meshwright.machine.machine import Machine
from meshwright.machine.mesh import Mesh, parse_mesh

__all__ = [
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
