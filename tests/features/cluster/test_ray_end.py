"""The end of a cluster on Ray: clients that outlive it are told, and start no other."""

import importlib
import time

import pytest

import meshwright as mw
from meshwright.errors import ClusterError
from meshwright.features.cluster.controller.tenants import Tenant

pytestmark = pytest.mark.cluster
pytest.importorskip("ray")


def test_a_client_that_outlives_its_cluster_is_told_so_and_starts_no_other_ray():
    ray = importlib.import_module("ray")
    tenants = (Tenant("a", "token-a", is_operator=True), Tenant("b", "token-b"))
    own = mw.cluster("local:1x1", token="token-a", tenants=tenants)
    guest = mw.cluster("local:1x1", token="token-b")
    part = guest.slice({"data": 1})
    own.close()
    own.close()
    with pytest.raises(ClusterError, match="has left Ray"):
        guest.status()
    with pytest.raises(ClusterError, match="has left Ray"):
        part.put(1.0)
    time.sleep(3)  # signs of life would have come
    assert not ray.is_initialized()
