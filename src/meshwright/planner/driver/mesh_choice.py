"""The meshes of a search: those of a machine that have the axes that tactics name."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.errors import MeshwrightError, PlanError
from meshwright.machine import Machine, Mesh
from meshwright.planner.candidates.meshes import MOST_AXES, meshes_of
from meshwright.planner.solve.space import Space


def meshes_with(
    machine: Machine, named: Sequence[str], most_axes: int
) -> tuple[Mesh, ...]:
    """All meshes of a machine with the named axes; `PlanError` if there are none."""
    if len(named) > most_axes:
        raise PlanError(
            f"the tactics name {len(named)} axes, {', '.join(named)}, and most_axes is "
            f"{most_axes}; allow more, at most {MOST_AXES}, or give the mesh"
        )
    found = meshes_of(machine, most_axes, named)
    if not found and machine.num_devices == 1:
        raise PlanError("one device leaves nothing to decide; ask for more chips")
    if not found:
        raise PlanError(
            f"{machine.num_devices} devices cannot form a mesh with axes "
            f"{', '.join(named)} of at least 2 devices each; give the mesh"
        )
    return found


def meshes_that_take(space: Space, meshes: Sequence[Mesh]) -> Sequence[Mesh]:
    """The meshes on which the user's tactics can be applied; `PlanError` if none.

    A single mesh is returned unchecked, so that the search raises the tactic's error.
    """
    if not space.given or len(meshes) == 1:
        return meshes
    found: list[Mesh] = []
    why = ""
    for mesh in meshes:
        try:
            space.start(mesh)
        except MeshwrightError as error:
            why = why or f"on {mesh} {error}"
        else:
            found.append(mesh)
    if not found:
        raise PlanError(
            f"none of {len(meshes)} meshes takes these tactics; for example, {why}"
        )
    return found
