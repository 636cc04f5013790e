"""Generated traces have the structure that they promise, and the same one each time."""

import itertools

import numpy as np
import pytest

from meshwright.errors import PolicyError
from meshwright.policies import (
    loop_trace,
    scan_trace,
    simulate,
    video_trace,
    zipf_trace,
)


def test_loops_have_their_closed_form() -> None:
    requests = loop_trace(11, 20, size=3)
    for policy in ("fifo", "lru", "clock", "sieve"):
        assert simulate(requests, 32, policy).miss_ratio == 1
        assert simulate(requests, 33, policy).misses == 11
    # after the first round, every tenth request is a miss
    assert simulate(requests, 32, "belady").misses == 11 + 19 * 11 // 10


def test_zipf_has_its_shares_and_drifts() -> None:
    requests = zipf_trace(100_000, 1_000, 0, exponent=1.0)
    counts = np.sort(np.bincount(requests.ids))[::-1]
    harmonic = (1 / np.arange(1, 1_001)).sum()
    for rank in (1, 2, 10):
        assert counts[rank - 1] == pytest.approx(1e5 / rank / harmonic, rel=0.06)
    still, moving = (
        zipf_trace(20_000, 1_000, 0, drift=drift, median_size=100)
        for drift in (0.0, 0.5)
    )
    capacity = still.working_set // 10
    lfu = [simulate(each, capacity, "lfu").misses for each in (still, moving)]
    assert lfu[1] > 1.2 * lfu[0]  # old counts mislead


def test_objects_of_scans_come_once() -> None:
    requests = scan_trace(20_000, 500, 1, share=0.4, length=100)
    counts = np.bincount(requests.ids)
    assert (counts == 1).sum() / 20_000 == pytest.approx(0.4, abs=0.1)
    capacity = requests.working_set // 20
    misses = [simulate(requests, capacity, each).misses for each in ("lru", "s3fifo")]
    assert misses[1] < misses[0]  # a scan does not get past the small queue


def test_chunks_of_videos_follow_each_other() -> None:
    requests = video_trace(20_000, 300, 0)
    assert requests.tags.shape == (20_000, 2)
    sizes = [requests.sizes[requests.tags[:, 0] == k].mean() for k in range(4)]
    for small, large in itertools.pairwise(sizes):
        assert large / small == pytest.approx(2, rel=0.1)


def test_seeds_and_refusals() -> None:
    for make in (zipf_trace, scan_trace, video_trace):
        one, same, other = (make(500, 50, seed) for seed in (0, 0, 1))
        assert (one.ids == same.ids).all()
        assert (one.sizes == same.sizes).all()
        assert len(other.ids) != len(one.ids) or (other.ids != one.ids).any()
    with pytest.raises(PolicyError, match="objects is 0"):
        zipf_trace(5, 0, 0)
    with pytest.raises(PolicyError, match="share is 2"):
        scan_trace(5, 5, 0, share=2)
