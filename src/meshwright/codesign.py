"""Models and machines searched for each other; `nas` searches for a model.

These are the public names of `features/codesign`.
"""

from meshwright.features.codesign import nas

__all__ = ["nas"]
