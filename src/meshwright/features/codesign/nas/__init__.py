"""Search for a model that is accurate, and fast on the machine that the user names.

Begin reading at `command.py`, which is `meshwright nas`.
"""

from meshwright.features.codesign.nas.cost.latency import Latency, latency
from meshwright.features.codesign.nas.families.points import Point
from meshwright.features.codesign.nas.families.scaling import Family, scale_family

__all__ = ["Family", "Latency", "Point", "latency", "scale_family"]
