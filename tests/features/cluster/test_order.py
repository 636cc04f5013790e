"""The order of an island: shares by weight in seconds, and the order within a tenant."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.fair_order import FairQueue


@dataclass(frozen=True)
class Job:
    number: int
    expected_s: float


def expected_s(job):
    return job.expected_s


def drained(queue, count):
    """The first `count` entries that are taken, with their tenants."""
    return [queue.take(expected_s) for _ in range(count)]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(0.5, 4), st.floats(1e-3, 1)), min_size=2, max_size=4)
)
def test_backlogged_tenants_get_seconds_in_proportion_to_their_weights(tenants):
    queue = FairQueue()
    for name, (weight, seconds) in enumerate(tenants):
        queue.set_weight(str(name), weight)
        for number in range(1500):
            queue.add(str(name), Job(number, seconds))
    used = dict.fromkeys(map(str, range(len(tenants))), 0.0)
    for tenant, job in drained(queue, 300):
        used[tenant] += job.expected_s
    longest_s = max(seconds / weight for weight, seconds in tenants)
    shares = [used[str(i)] / weight for i, (weight, _) in enumerate(tenants)]
    assert max(shares) - min(shares) <= longest_s * (1 + 1e-6)


@given(st.lists(st.sampled_from("ab"), max_size=60))
def test_requests_of_one_tenant_keep_their_order(names):
    queue = FairQueue()
    queue.set_weight("a", 1)
    queue.set_weight("b", 2)
    for number, name in enumerate(names):
        queue.add(name, Job(number, 0.1))
    taken = drained(queue, len(names))
    for name in "ab":
        numbers = [job.number for tenant, job in taken if tenant == name]
        assert numbers == sorted(numbers)
    assert queue.take(expected_s) is None


def test_a_tenant_that_rested_cannot_save_up_time():
    queue = FairQueue()
    queue.set_weight("busy", 1)
    queue.set_weight("rested", 1)
    for number in range(200):
        queue.add("busy", Job(number, 1.0))
    drained(queue, 100)
    for number in range(100):
        queue.add("rested", Job(number, 1.0))
    tenants = [tenant for tenant, _ in drained(queue, 20)]
    assert tenants.count("rested") == 10


def test_an_entry_is_charged_by_what_is_known_when_it_is_taken():
    queue, known = FairQueue(), {0: 1.0}
    queue.set_weight("a", 1)
    queue.add("a", Job(0, 1.0))
    known[0] = 0.25  # measured while the entry waited
    queue.take(lambda job: known[job.number])
    assert queue.used_s == {"a": 0.25}


def test_a_correction_is_charged():
    queue = FairQueue()
    queue.set_weight("a", 2)
    queue.charge("a", 3.0)
    assert queue.used_s == {"a": 1.5}


@pytest.mark.parametrize("weight", [0, -1, float("inf"), float("nan")])
def test_a_weight_that_is_no_share_is_refused(weight):
    with pytest.raises(ClusterError, match="wanted > 0"):
        FairQueue().set_weight("a", weight)
