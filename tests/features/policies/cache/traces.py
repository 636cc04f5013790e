"""Traces of known structure, for tests of eviction policies."""

import numpy as np

from meshwright.policies import Trace, trace


def zipf(requests: int = 20_000, objects: int = 2_000, seed: int = 0) -> Trace:
    """Requests whose objects have a Zipf distribution, with sizes from 1 to 1,000."""
    draws = np.random.default_rng(seed)
    shares = 1 / np.arange(1, objects + 1) ** 0.8
    ids = draws.choice(objects, requests, p=shares / shares.sum())
    sizes = draws.integers(1, 1_001, objects)
    return trace(ids, sizes[ids], name="zipf")


def small(seed: int) -> Trace:
    """A short trace with few objects, of sizes 1 to 4 or all of size 1."""
    draws = np.random.default_rng(seed)
    ids = draws.integers(0, 8, draws.integers(1, 60))
    sizes = draws.integers(1, 5, 8) if seed % 2 else np.ones(8, np.int64)
    return trace(ids, sizes[ids])


def loop(objects: int, rounds: int) -> Trace:
    """Requests for the same objects in the same order, again and again."""
    return trace(np.tile(np.arange(objects), rounds))
