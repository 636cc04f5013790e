"""Meshes as users write them: `mw.Mesh`, `jax.sharding.Mesh`, dict of axis sizes."""

from collections.abc import Mapping

import jax

from meshwright.errors import MeshError
from meshwright.machine import Mesh


def as_mesh(mesh: Mesh | jax.sharding.Mesh | Mapping[str, int]) -> Mesh:
    """The `Mesh` equal to a `mw.Mesh`, `jax.sharding.Mesh` or dict of axis sizes."""
    if isinstance(mesh, Mesh):
        return mesh
    if isinstance(mesh, jax.sharding.Mesh):
        return Mesh(dict(mesh.shape), tuple(mesh.devices.flat))
    if isinstance(mesh, Mapping):
        return Mesh(mesh)
    raise MeshError(
        f"{mesh!r:.60} is no mesh; wanted mw.Mesh, jax.sharding.Mesh or axis sizes, "
        "such as {'data': 8}"
    )
