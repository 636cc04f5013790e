"""The parameter server, with replicas that a fake clock drives."""

import heapq

import numpy as np
import pytest

from meshwright.features.cluster.replicate.server import ParameterServer

SGD = 0.5


def add_mean(state, many):
    return state - SGD * np.mean(many)


def drive(server, ticks, end):
    """Run replicas until `end` updates; replica i takes `ticks[i]` to compute.

    Its values are the version from which they were computed. Returns the clock.
    """
    todo = [(ticks[i], i, 0) for i in range(len(ticks))]
    idle = []
    while len(server.updates) < end:
        now, replica, version = heapq.heappop(todo)
        server.offer(replica, version, float(version), np.int32(replica))
        idle.append(replica)
        for each in [i for i in idle if not server.is_waiting(i)]:
            idle.remove(each)
            heapq.heappush(todo, (now + ticks[each], each, server.version))
    return now


def test_without_staleness_an_update_is_the_mean_of_all_replicas():
    server = ParameterServer(0.0, add_mean, replicas=3, staleness=0)
    for replica in (2, 0, 1):
        assert server.version == 0
        assert server.offer(replica, 0, float(replica + 1), np.int32(replica))
    assert server.version == 1
    assert server.state == -SGD * 2
    (update,) = server.updates
    assert update.replicas == (0, 1, 2)  # in their order, whoever came first
    np.testing.assert_array_equal(update.results, [0, 1, 2])
    assert update.num_dropped == 0


def test_a_gradient_is_applied_up_to_the_staleness_and_dropped_beyond():
    server = ParameterServer(0.0, add_mean, replicas=2, staleness=2)
    for version in range(2):
        assert server.offer(0, version, 1.0, ())
    assert server.offer(1, 0, 1.0, ())  # two updates since it was read
    assert server.version == 3
    assert not server.offer(1, 0, 1.0, ())
    assert server.version == 3
    assert server.state == -3 * SGD
    assert server.num_dropped == 1
    assert server.offer(1, 3, 1.0, ())
    assert server.updates[-1].num_dropped == 1


@pytest.mark.parametrize("staleness", [1, 2, 4])
def test_no_update_has_gradients_that_are_staler_than_allowed(staleness):
    lags = []

    def apply(state, many):
        lags.extend(state - version for version in many)
        return state + 1

    server = ParameterServer(0, apply, replicas=4, staleness=staleness)
    drive(server, (2, 3, 5, 7), end=50)
    assert max(lags) == staleness  # some are as stale as they may be
    assert server.num_dropped > 0


def test_a_slow_replica_holds_up_the_others_only_without_staleness():
    """One of four takes 10 times as long: gradients applied in as many ticks."""
    counts = {}
    for staleness in (0, 4):
        server = ParameterServer(0.0, add_mean, replicas=4, staleness=staleness)
        now = drive(server, (1, 1, 1, 10), end=60)
        counts[staleness] = sum(len(u.replicas) for u in server.updates) / now
    assert counts[0] == pytest.approx(0.4)
    assert counts[4] > 2.5
