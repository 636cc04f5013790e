"""Traces with a known structure, from seeds: loops, drifting Zipf, scans, videos."""

import numpy as np

from meshwright.errors import PolicyError
from meshwright.features.policies.cache.trace import Trace, trace


def loop_trace(objects: int, rounds: int, size: int = 1) -> Trace:
    """A trace of the same objects in the same order, again and again.

    LRU and FIFO miss always if the loop does not fit; Belady misses, after the first round,
    one of `objects - 1` requests for each object that does not fit.
    """
    _check(objects=objects, rounds=rounds, size=size)
    ids = np.tile(np.arange(objects), rounds)
    return trace(ids, np.full(len(ids), size), name="loop")


def zipf_trace(
    requests: int,
    objects: int,
    seed: int,
    *,
    exponent: float = 0.9,
    drift: float = 0.0,
    median_size: int = 10_000,
) -> Trace:
    """Independent requests; the object of rank r has a share of r ** -exponent.

    drift: of the objects, the share that takes a new random rank in each tenth of the
        trace. Sizes are log-normal, and do not depend on rank.
    """
    _check(requests=requests, objects=objects, median_size=median_size)
    draws = np.random.default_rng(seed)
    ranks = _zipf_ranks(draws, requests, objects, exponent)
    of_rank = draws.permutation(objects)
    ids = np.empty(requests, np.int64)
    for part in np.array_split(np.arange(requests), 10):
        ids[part] = of_rank[ranks[part]]
        moved = np.flatnonzero(draws.random(objects) < drift)
        of_rank[moved] = of_rank[draws.permutation(moved)]
    return trace(ids, _sizes(draws, objects, median_size)[ids], name="zipf")


def scan_trace(
    requests: int,
    objects: int,
    seed: int,
    *,
    exponent: float = 0.9,
    share: float = 0.3,
    length: int = 500,
) -> Trace:
    """A Zipf trace with scans between: runs of `length` objects that never return.

    share: of the requests, those that belong to scans.
    """
    _check(requests=requests, objects=objects, length=length)
    if not 0 <= share <= 1:
        raise PolicyError(f"share is {share}; wanted a number from 0 to 1")
    draws = np.random.default_rng(seed)
    ids = _zipf_ranks(draws, requests, objects, exponent)
    runs = -(-requests // length)
    is_scan = np.repeat(draws.random(runs) < share, length)[:requests]
    ids[is_scan] = objects + np.arange(int(is_scan.sum()))
    return trace(ids, _sizes(draws, ids.max() + 1)[ids], name="scan")


def video_trace(
    requests: int,
    videos: int,
    seed: int,
    *,
    viewers: int = 40,
    chunk_bytes: int = 200_000,
) -> Trace:
    """Viewers who watch chunks of videos one after the other, in one of four qualities.

    A viewer takes a video by its Zipf rank and a quality, asks for chunk after chunk, and
    leaves after each with a probability of 5 %. A chunk's size doubles with the quality.
    Tags: the quality, and the share of the video that has passed; so the next chunk, its
    neighbour, is likely to be asked for soon.
    """
    _check(requests=requests, videos=videos, viewers=viewers, chunk_bytes=chunk_bytes)
    draws = np.random.default_rng(seed)
    lengths = draws.integers(5, 60, videos)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    factors = draws.lognormal(0, 0.3, 4 * int(starts[-1]))
    video, chunk, quality = np.zeros((3, viewers), np.int64)
    chunk[:] = -1
    ids, tags = np.zeros(requests, np.int64), np.zeros((requests, 2))
    chosen = _zipf_ranks(draws, requests, videos, 0.8)
    leaves, who = draws.random(requests) < 0.05, draws.integers(0, viewers, requests)
    qualities = draws.choice(4, requests, p=[0.1, 0.3, 0.4, 0.2])
    for t in range(requests):
        v = who[t]
        chunk[v] += 1
        if chunk[v] == 0 or leaves[t] or chunk[v] >= lengths[video[v]]:
            video[v], chunk[v], quality[v] = chosen[t], 0, qualities[t]
        ids[t] = 4 * (starts[video[v]] + chunk[v]) + quality[v]
        tags[t] = quality[v], chunk[v] / lengths[video[v]]
    sizes = np.maximum(1, chunk_bytes * factors[ids] * 2.0 ** (ids % 4 - 2))
    return trace(ids, sizes.astype(np.int64), tags=tags, name="video")


def _zipf_ranks(
    draws: np.random.Generator, requests: int, objects: int, exponent: float
) -> np.ndarray:
    """Ranks from 0 on, drawn independently with shares of (rank + 1) ** -exponent."""
    shares = np.cumsum((1.0 + np.arange(objects)) ** -exponent)
    return np.searchsorted(shares / shares[-1], draws.random(requests))


def _sizes(
    draws: np.random.Generator, objects: int, median: int = 10_000
) -> np.ndarray:
    """Log-normal sizes, of 1 byte or more."""
    return np.maximum(1, median * draws.lognormal(0, 1, objects)).astype(np.int64)


def _check(**numbers: int) -> None:
    """Refuse numbers below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise PolicyError(f"{name} is {number}; wanted 1 or more")
