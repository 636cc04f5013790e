"""`mw.nnx`: steps that update flax nnx modules in place.

In: a step as `nnx.jit` takes it, a mesh and tactics. Out: a step that is called alike, and
writes the results into the caller's modules. Begin reading at `partitioned_modules.py`.
"""

from meshwright.features.nnx.partitioned_modules import partition

__all__ = ["partition"]
"""The names that users call as `mw.nnx.NAME`."""
