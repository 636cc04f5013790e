"""Models and machines searched for each other.

`nas` searches for a model, `accelerator` for a chip that runs it, `joint` for both at once,
and `floorplan` for places of a chip's macros.

These are the public names of `features/codesign`.
"""

from meshwright.features.codesign import accelerator, floorplan, joint, nas

__all__ = ["accelerator", "floorplan", "joint", "nas"]
