"""Eviction policies: results of libCacheSim, plain references, closed forms, bounds."""

import itertools
from collections import OrderedDict

import numpy as np
import pytest

from meshwright.features.policies.cache.eviction.halp import empty_halp
from meshwright.features.policies.cache.eviction.learning.histories import FEATURES
from meshwright.features.policies.cache.eviction.learning.pair_network import (
    learn,
    random_network,
    score,
)
from meshwright.policies import (
    POLICIES,
    Trace,
    least_misses,
    loop_trace,
    scan_trace,
    simulate,
    trace,
)
from tests.features.policies.cache import traces

LIBCACHESIM = {
    "fifo": ((18322, 9635676), (13152, 6734595)),
    "lru": ((18114, 9459675), (12322, 6276550)),
    "clock": ((17957, 9330458), (12015, 6119787)),
    "sieve": ((15787, 8109835), (10488, 5332038)),
    "s3fifo": ((15656, 8034562), (10425, 5298562)),
    "2q": ((16364, 8382435), (10961, 5566057)),
    "arc": ((16429, 8422320), (10659, 5420159)),
    "lfu": ((15533, 8059832), (10592, 5383545)),
    "gdsf": ((16266, 8687377), (10072, 5740323)),
}
"""Misses and missed bytes of libcachesim 0.3.5 on `traces.zipf()`, 10 and 100 kB."""


@pytest.mark.parametrize("policy", LIBCACHESIM)
def test_misses_equal_those_of_libcachesim(policy: str) -> None:
    requests = traces.zipf()
    for capacity, expected in zip((10_000, 100_000), LIBCACHESIM[policy], strict=True):
        result = simulate(requests, capacity, policy)
        assert (result.misses, result.missed_bytes) == expected


def by_lists(requests: Trace, capacity: int, policy: str) -> list[bool]:
    """Hits of FIFO, LRU, SIEVE or Belady, by Python's own containers."""
    queue: OrderedDict[int, int] = OrderedDict()  # the oldest object first
    marked: dict[int, bool] = {}
    hand: int | None = None
    hits = []
    following = requests.following()
    comes_next: dict[int, int] = {}
    for t, (each, size) in enumerate(zip(requests.ids, requests.sizes, strict=True)):
        each, size = int(each), int(size)
        hits.append(each in queue)
        comes_next[each] = int(following[t])
        if each in queue:
            marked[each] = True
            if policy == "lru":
                queue.move_to_end(each)
            continue
        if size > capacity:
            continue
        while sum(queue.values()) + size > capacity:
            order = list(queue)
            victim = order[0]
            if policy == "belady":
                victim = max(order, key=lambda other: comes_next[other])
            if policy == "sieve":
                at = order.index(hand) if hand is not None else 0
                while marked[order[at]]:
                    marked[order[at]] = False
                    at = (at + 1) % len(order)
                victim = order[at]
                hand = order[at + 1] if at + 1 < len(order) else None
            del queue[victim]
        queue[each], marked[each] = size, False
    return hits


@pytest.mark.parametrize("policy", ["fifo", "lru", "sieve", "belady"])
def test_hits_equal_those_of_plain_lists(policy: str) -> None:
    for seed, capacity in itertools.product(range(60), (1, 3, 7, 20)):
        requests = traces.small(seed)
        if policy == "belady" and seed % 2:
            continue  # which of the objects that never return goes first is open
        hits = simulate(requests, capacity, policy).hits
        assert hits.tolist() == by_lists(requests, capacity, policy), (seed, capacity)


def fewest_misses(requests: Trace, capacity: int) -> int:
    """The least misses of any choice of victims, for objects of size 1."""
    states = {frozenset[int](): 0}
    for each in requests.ids.tolist():
        following: dict[frozenset[int], int] = {}
        for held, misses in states.items():
            if each in held:
                choices = [(held, misses)]
            elif len(held) < capacity:
                choices = [(held | {each}, misses + 1)]
            else:
                choices = [((held - {out}) | {each}, misses + 1) for out in held]
            for state, count in choices:
                following[state] = min(count, following.get(state, count))
        states = following
    return min(states.values())


def test_belady_is_optimal_and_the_bound_is_below_it() -> None:
    for seed, capacity in itertools.product(range(0, 40, 2), (1, 2, 4)):
        requests = traces.small(seed)
        misses = simulate(requests, capacity, "belady").misses
        assert misses == fewest_misses(requests, capacity)
        assert least_misses(requests, capacity)[0] <= misses


@pytest.mark.parametrize("policy", POLICIES)
def test_laws_of_every_policy(policy: str) -> None:
    requests = traces.zipf(3_000, 200)
    everything = simulate(requests, 20 * requests.working_set, policy)
    assert everything.misses == requests.objects  # only first requests miss
    for capacity in (1_000, 10_000):
        result = simulate(requests, capacity, policy)
        misses, missed = least_misses(requests, capacity)
        assert result.misses >= misses
        assert result.missed_bytes >= missed
        assert result == simulate(requests, capacity, policy)
    large = trace([1, 2, 1, 1], [1, 50, 1, 1])
    assert simulate(large, 40, policy).misses >= 2  # what cannot fit is not stored


def test_a_loop_that_does_not_fit_misses_always_but_for_belady() -> None:
    requests = traces.loop(11, 20)
    for policy in ("fifo", "lru", "clock", "sieve"):
        assert simulate(requests, 10, policy).miss_ratio == 1
    # after the first round, every tenth request is a miss
    assert simulate(requests, 10, "belady").misses == 11 + 19 * 11 // 10


def test_two_queues_of_a_tiny_cache() -> None:
    """Four objects fit; one may be new, and two are remembered after their eviction."""
    requests = trace([1, 2, 3, 4, 5, 1, 1, 2, 3])
    hits = simulate(requests, 4, "2q").hits
    # 1, 2 and 3 come back as ghosts, and enter the main queue, in place of new objects
    assert hits.tolist() == [False] * 6 + [True, False, False]


def test_halp_keeps_less_than_100_bytes_for_each_object() -> None:
    def num_bytes(state: object) -> int:
        if isinstance(state, np.ndarray):
            return state.nbytes
        return sum(num_bytes(each) for each in state)

    sizes = [num_bytes(empty_halp(objects, 0)) for objects in (1_000, 3_000)]
    assert (sizes[1] - sizes[0]) / 2_000 <= 100


def test_foresight_follows_what_is_best() -> None:
    """SIEVE and LRU lose on loops, S3-FIFO is weak on what LFU keeps."""
    for requests in (
        loop_trace(3_000, 20),
        traces.zipf(),
        scan_trace(40_000, 2_000, 3),
    ):
        capacity = requests.working_set // 20
        best, foresight = (
            min(simulate(requests, capacity, each).missed_bytes for each in names)
            for names in (("lru", "sieve", "s3fifo", "lfuda"), ("foresight",))
        )
        assert foresight < 1.03 * best


def test_halp_learns_what_lru_cannot_see() -> None:
    """Objects asked for once come between others that return after long times."""
    draws = np.random.default_rng(0)
    ids = np.where(
        np.arange(30_000) % 2, draws.integers(0, 600, 30_000), 1_000 + np.arange(30_000)
    )
    requests = trace(ids)
    lru = simulate(requests, 600, "lru").miss_ratio
    assert simulate(requests, 600, "halp").miss_ratio < lru - 0.02


def test_a_network_scores_objects_as_numpy_does_and_orders_what_it_has_learned() -> (
    None
):
    network = random_network(4, seed=1)
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 255, (4, FEATURES)).astype(np.uint8)
    for _ in range(3000):
        learn(network, codes[0], codes[1])
    values = np.zeros(4)
    score(network, codes, values)
    inputs = np.concatenate((codes / 160, np.ones((4, 1))), axis=1)
    wanted = np.maximum(inputs @ network.weights, 0) @ network.out
    np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-4)
    assert values[0] > values[1]
    for means in (network.slopes, network.squares):
        assert not ((means != 0) & (np.abs(means) < np.finfo(np.float32).tiny)).any()
