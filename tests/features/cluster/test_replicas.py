"""Replicas on a cluster of 4 Ray workers of one device: equal to one device."""

import jax
import numpy as np
import pytest

import meshwright as mw
from meshwright.features.cluster.replicate.replica_threads import fetch
from tests.features.cluster.replicate.cases import (
    d4pg_case,
    report_against_one_device,
    resnet_case,
    sngan_case,
)

pytestmark = pytest.mark.cluster
pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    with mw.cluster("local:4x1") as found:
        yield found


@pytest.mark.parametrize("make_case", [resnet_case, sngan_case, d4pg_case])
def test_four_replicas_on_four_workers_equal_one_device(cluster, make_case):
    case = make, state, batch = make_case()
    r = mw.Replicator(4, cluster)
    found = fetch(r.step(make(r))(state, r.split(batch)))
    report = report_against_one_device(case, found)
    assert report.ok, str(report)


def test_asynchronous_replicas_on_four_workers_equal_those_in_lockstep(cluster):
    make, state, batch = d4pg_case()
    found = []
    for regime in ("synchronous", "asynchronous"):
        r = mw.Replicator(4, cluster, regime=regime)
        run = r.run(
            make(r), lambda context: iter(3 * [context.share(batch)]), state, steps=3
        )
        found.append(fetch([*run][-1].state))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), *found
    )


def test_stale_gradients_of_four_workers_train(cluster):
    make, state, batch = d4pg_case()
    r = mw.Replicator(4, cluster, regime="asynchronous", staleness=16)
    run = r.run(
        make(r), lambda context: iter(3 * [context.share(batch)]), state, steps=100
    )
    updates = list(run)
    assert [update.version for update in updates] == list(range(1, 13))
    assert {i for update in updates for i in update.replicas} == {0, 1, 2, 3}
    assert int(updates[-1].state.stats["updates"]) == 3 + 12
