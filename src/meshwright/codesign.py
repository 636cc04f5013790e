"""Models and machines searched for each other.

`nas` searches for a model, `accelerator` for a chip that runs it, and `floorplan` for
places of a chip's macros.

These are the public names of `features/codesign`.
"""

from meshwright.features.codesign import accelerator, floorplan, nas

__all__ = ["accelerator", "floorplan", "nas"]
