"""Meshes of stages, and their placement on the devices of a machine.

A stage's mesh has at most two axes: "model" on the innermost links, and "data".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from meshwright.machine import Machine, Mesh
from meshwright.machine.machine import make_grid
from meshwright.machine.placement import (
    Matrix,
    Placement,
    place_mesh,
    placed_by,
    placement_matrices,
)
from meshwright.partitioner.propagate import user_axes
from meshwright.partitioner.tactics import Tactic

DATA = "data"
"""Axis of a stage's mesh along which the stage has replicas."""

MODEL = "model"
"""Axis of a stage's mesh along which devices share the stage's layers."""


@dataclass(frozen=True, slots=True)
class IntraStrategy:
    """Tactics for the inside of a stage, on one kind of mesh.

    model: size of the axis "model".
    batch_axes: axes that cut the batch. "data" is among them if the mesh has this axis,
        of any size above one.
    """

    name: str
    tactics: tuple[Tactic, ...]
    model: int
    batch_axes: tuple[str, ...]

    @property
    def has_data(self) -> bool:
        """Whether there is an axis "data"."""
        return DATA in self.batch_axes

    def mesh(self, data: int) -> Mesh:
        """The mesh of a stage with `data` data-parallel replicas."""
        sizes = {DATA: data} if self.has_data else {}
        if self.model > 1 or not sizes:
            sizes[MODEL] = self.model
        return Mesh(sizes)

    def batch_parts(self, data: int) -> int:
        """The number of parts into which a microbatch is cut over `data` replicas."""
        sizes = {DATA: data, MODEL: self.model}
        return int(np.prod([sizes[axis] for axis in self.batch_axes], dtype=int))


def submachine(machine: Machine, num_devices: int) -> Machine:
    """The part of a machine with so many devices.

    Raises `MachineError` if so many devices form no grid.
    """
    grid = make_grid(machine.name, machine.levels, num_devices)
    return replace(machine, num_devices=num_devices, grid=grid)


def place_stage(mesh: Mesh, machine: Machine) -> Placement:
    """The placement of a stage's mesh: the axis "model" on the innermost links.

    The placement of "model" is then the same for any number of replicas.
    """
    inner = [i for i, dim in enumerate(machine.grid) if dim.level is machine.levels[0]]
    rows = [i for i, axis in enumerate(mesh.axes) if user_axes((axis,)) == (MODEL,)]

    def devices_inside(matrix: Matrix) -> int:
        return math.prod(matrix[row][dim] for row in rows for dim in inner)

    usual = place_mesh(mesh, machine)
    candidates = [usual.matrix, *placement_matrices(mesh, machine)]
    return placed_by(max(candidates, key=devices_inside), mesh, machine)
