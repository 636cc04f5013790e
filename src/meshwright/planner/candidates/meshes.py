"""The meshes that a search tries on a machine.

If the user gave tactics, only meshes on which these can be applied are tried.
"""

import math
from collections.abc import Sequence

from meshwright.errors import MeshwrightError, PlanError
from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import factorings, place_mesh
from meshwright.planner.solve.space import Space

NAMES = ("data", "model", "more")
"""Names of the mesh axes; the search decides what each of them shards."""

MOST_AXES = len(NAMES)
"""Largest number of axes that a mesh may have in a search."""


def meshes_of(
    machine: Machine, most_axes: int = 2, named: Sequence[str] = ()
) -> tuple[Mesh, ...]:
    """All meshes that use the whole machine, those of fewer axes first.

    Among meshes with the same number of axes, those come first whose last axis has
    about as many devices as the fastest links join. Meshes that map onto the same links
    and differ only in axis names count as one, unless the user gave the names.
    named: names of axes that every mesh must have.
    """
    names = _names(named)
    found: dict[object, Mesh] = {}
    for count in range(max(1, len(named)), most_axes + 1):
        others = [name for name in names if name not in named]
        own = {*named, *others[: count - len(named)]}
        axes = [name for name in names if name in own]
        size = machine.num_devices
        for sizes in sorted(factorings(size, (size,) * count), reverse=True):
            if 1 in sizes:
                continue
            mesh = Mesh(dict(zip(axes, sizes, strict=True)))
            placed = place_mesh(mesh, machine).segments
            layout = (
                (repr(runs), axis if axis in named else "") for axis, runs in placed
            )
            found.setdefault(tuple(sorted(layout)), mesh)
    inner = _inner_devices(machine)

    def distance_from_links(mesh: Mesh) -> tuple[int, float]:
        last = mesh.sizes[-1][1]
        return len(mesh.axes), abs(math.log2(last / inner)) if inner else 0.0

    return tuple(sorted(found.values(), key=distance_from_links))


def meshes_with(
    machine: Machine, named: Sequence[str], most_axes: int
) -> tuple[Mesh, ...]:
    """All meshes of a machine that have the named axes.

    Raises `PlanError` if there are none.
    """
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


def usable_meshes(space: Space, meshes: Sequence[Mesh]) -> Sequence[Mesh]:
    """The meshes on which the user's tactics can be applied.

    Raises `PlanError` if there are none. A single mesh is returned unchecked, so that
    the search raises the tactic's own error.
    """
    if not space.kept_tactics or len(meshes) == 1:
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
            f"these tactics fit none of {len(meshes)} meshes; for example, {why}"
        )
    return found


def _inner_devices(machine: Machine) -> int:
    """Number of devices that the fastest links join; 0 if all links are of one kind."""
    fastest = machine.levels[0] if machine.levels else None
    joined = [dim.extent for dim in machine.grid if dim.level is fastest]
    extent = math.prod(joined)
    return extent if 1 < extent < machine.num_devices else 0


def _names(named: Sequence[str]) -> list[str]:
    """The axis names of a search: `NAMES`, some replaced by the user's own names."""
    free = [name for name in NAMES if name not in named]
    foreign = [name for name in named if name not in NAMES]
    instead = dict(zip(free, foreign, strict=False))
    return [instead.get(name, name) for name in NAMES]
