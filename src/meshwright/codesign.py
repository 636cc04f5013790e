"""Models and machines searched for each other.

`nas` searches for a model, `floorplan` for places of a chip's macros.

These are the public names of `features/codesign`.
"""

from meshwright.features.codesign import floorplan, nas

__all__ = ["floorplan", "nas"]
