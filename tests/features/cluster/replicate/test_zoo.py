"""The zoo's steps over 4 replicas: equal to one device with the whole batch."""

import pytest

import meshwright as mw
from meshwright.features.cluster.replicate.replica_threads import fetch
from tests.features.cluster.replicate.cases import (
    d4pg_case,
    report_against_one_device,
    resnet_case,
    sngan_case,
)

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "make_case", [resnet_case, d4pg_case, pytest.param(sngan_case, marks=SLOW)]
)
def test_four_replicas_on_four_devices_equal_one_device(make_case):
    case = make, state, batch = make_case()
    r = mw.Replicator(4)
    assert r.on == 4, "one device for each replica"
    step = r.step(make(r))
    report = report_against_one_device(case, step(state, r.split(batch)))
    assert report.ok, str(report)
    assert not any(error.is_ill_conditioned for error in report.outputs)

    plan = step.plan(state, r.split(batch))
    assert {kind for kind, count in plan.counts.items() if count} == {"all_reduce"}
    assert plan.whole == ()


@pytest.mark.parametrize(
    "make_case",
    [
        d4pg_case,
        pytest.param(resnet_case, marks=SLOW),
        pytest.param(sngan_case, marks=SLOW),
    ],
)
def test_four_replicas_on_a_slice_of_a_cluster_equal_one_device(make_case):
    case = make, state, batch = make_case()
    with mw.cluster("inline") as cluster:
        r = mw.Replicator(4, cluster)
        found = fetch(r.step(make(r))(state, r.split(batch)))
    report = report_against_one_device(case, found)
    assert report.ok, str(report)
