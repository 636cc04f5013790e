"""Learned policies in systems: evictions of a cache, decisions of a compiler.

These are the public names of `features/policies`.
"""

from meshwright.features.policies.cache.bounds import least_misses
from meshwright.features.policies.cache.generate import (
    loop_trace,
    scan_trace,
    video_trace,
    zipf_trace,
)
from meshwright.features.policies.cache.impact import Impact, impact
from meshwright.features.policies.cache.serving.cache import SERVING, Cache
from meshwright.features.policies.cache.serving.metrics import CacheMetrics
from meshwright.features.policies.cache.simulate import (
    POLICIES,
    CacheSimulation,
    simulate,
)
from meshwright.features.policies.cache.trace import Trace, read_trace, trace
from meshwright.features.policies.compiler.compiler import ClangCompiler as Compiler
from meshwright.features.policies.compiler.compiler import ClangObject
from meshwright.features.policies.compiler.learned.policy_file import read_policy

__all__ = [
    "POLICIES",
    "SERVING",
    "Cache",
    "CacheMetrics",
    "CacheSimulation",
    "ClangObject",
    "Compiler",
    "Impact",
    "Trace",
    "impact",
    "least_misses",
    "loop_trace",
    "read_policy",
    "read_trace",
    "scan_trace",
    "simulate",
    "trace",
    "video_trace",
    "zipf_trace",
]
