"""Learned policies in systems: which object a cache evicts.

These are the public names of `features/policies`.
"""

from meshwright.features.policies.cache.bounds import least_misses
from meshwright.features.policies.cache.simulate import (
    POLICIES,
    CacheSimulation,
    simulate,
)
from meshwright.features.policies.cache.trace import Trace, read_trace, trace

__all__ = [
    "POLICIES",
    "CacheSimulation",
    "Trace",
    "least_misses",
    "read_trace",
    "simulate",
    "trace",
]
