"""Search for a model that is accurate, and fast on the machine that the user names.

Begin reading at `command.py`, which is `meshwright nas`.
"""

from meshwright.features.codesign.nas.cost.latency import Latency, latency

__all__ = ["Latency", "latency"]
