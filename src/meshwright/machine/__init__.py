"""Machines and meshes."""

from meshwright.machine.mesh import Mesh, parse_mesh

__all__ = ["Mesh", "parse_mesh"]
