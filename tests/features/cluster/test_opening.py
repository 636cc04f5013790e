"""`mw.cluster`: what is started, what is joined, and what is refused."""

import contextlib
import socket
from types import SimpleNamespace

import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import ClusterError
from meshwright.features.cluster import start as opening
from meshwright.features.cluster.controller.controller import Controller
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines import ray_address, ray_connection
from meshwright.features.cluster.engines.local_engine import ThreadConnection
from meshwright.features.cluster.engines.ray_engine import RayEngine
from meshwright.features.cluster.start import Workers, start_cluster
from tests.features.cluster.fake_gang import FakeEngine

TENANTS = (Tenant("a", "token-a"), Tenant("b", "token-b", is_operator=True))


class Door(ThreadConnection):
    """A connection to a controller of fake workers, which others may have started."""

    def __init__(self, size, is_new):
        super().__init__(lambda: Controller(FakeEngine(), size, TENANTS))
        self.is_new, self.is_closed = is_new, False

    def close(self):
        self.is_closed = True
        super().close()


@pytest.fixture
def doors(monkeypatch):
    """What was connected to; another has started a cluster of 4 workers of 2 devices."""
    found = []

    def connect(address, engine, size, tenants, limits):
        assert tenants
        found.append((address, engine, size, Door(GangSize(4, 2), is_new=False)))
        return found[-1][-1]

    monkeypatch.setattr(ray_connection, "connect", connect)
    return found


def test_by_default_ray_is_started_on_this_machine_with_four_workers_of_two_devices(
    doors,
):
    with mw.cluster(token="token-a") as found:
        assert found.wait_until_ready().devices == 8
    ((address, engine, size, door),) = doors
    assert address is None
    assert isinstance(engine, RayEngine)
    assert engine.platform == "cpu"
    assert size == GangSize(4, 2)
    assert door.is_closed


def test_a_local_cluster_of_another_size_is_refused_and_the_first_one_stays(doors):
    with pytest.raises(ClusterError, match=r"of 4 workers of 2 devices already.*4x2"):
        mw.cluster("local:2x2", token="token-a")
    assert doors[0][-1].is_closed  # the connection; the cluster of Ray is not its own
    with mw.cluster("local:4x2", token="token-a"):
        pass
    with mw.cluster("host:6379", token="token-a"):  # whichever size it has
        pass


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_at_which_nobody_listens_is_refused_at_once(scheme, monkeypatch):
    monkeypatch.setattr(ray_address, "find_spec", lambda module: module)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{found.getsockname()[1]}"
        for each in (address, f"{scheme}127.0.0.1:99999"):
            with pytest.raises(ClusterError, match=f"nobody answers at {each}"):
                ray_address.join_ray(None, each)


def test_ray_client_without_grpc_names_the_extra(monkeypatch):
    monkeypatch.setattr(ray_address, "find_spec", lambda module: None)
    with pytest.raises(ClusterError, match=r"grpcio; pip install 'ray\[client\]'"):
        ray_address.join_ray(None, "ray://127.0.0.1:10001")


@pytest.mark.parametrize("where", ["foo://host:1", "ray://host", "host:", "local:4x"])
def test_an_address_of_another_kind_is_refused(doors, where):
    with pytest.raises(ClusterError, match="wanted 'inline', 'local:4x2'"):
        mw.cluster(where)
    assert not doors


@pytest.mark.parametrize("where", ["local:0x2", "local:2x0"])
def test_a_cluster_of_nothing_is_refused(doors, where):
    with pytest.raises(ClusterError, match="1 or more"):
        mw.cluster(where)
    assert not doors


def test_a_wrong_token_closes_the_connection(doors):
    with pytest.raises(ClusterError, match="the token is that of no tenant"):
        mw.cluster("local", token="another")
    assert doors[0][-1].is_closed


def test_workers_are_not_started_where_a_controller_runs(doors):
    with pytest.raises(ClusterError, match="a controller runs at host:6379 already"):
        start_cluster(
            "host:6379", token="token-b", tenants=TENANTS, workers=Workers(2, 2)
        )
    assert doors[0][-1].is_closed


def test_a_cpu_has_one_device_unless_more_are_asked_for():
    for devices, wanted in [(0, 1), (1, 1), (8, 8)]:
        found = RayEngine("cpu", {})._environment(GangSize(1, devices))
        flag = f"--xla_force_host_platform_device_count={wanted}"
        assert found == {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flag}
    found = RayEngine("cuda", {})._environment(GangSize(1, 0))
    assert found == {"JAX_PLATFORMS": "cuda"}


def test_one_who_may_not_stop_the_cluster_keeps_the_session(doors):
    with opening.cluster(token="token-a") as found:
        with pytest.raises(ClusterError, match="no operator"):
            found.stop()
        assert not found._session.is_closed
        assert found.wait_until_ready().places


def test_the_last_events_keep_their_numbers(doors):
    with mw.cluster(token="token-a") as found:
        found.wait_until_ready()
        numbers = [event.number for event in found.events()]
        assert numbers == sorted(set(numbers))
        assert found._session.ask("events", numbers[-1]) == []


class SlowRay:
    """A Ray that starts at the attempt with a number, or fails with an error."""

    exceptions = SimpleNamespace(
        RaySystemError=type("RaySystemError", (Exception,), {})
    )

    def __init__(self, starts, error=None):
        self.starts = starts
        self.error = error or Exception(
            "The node timed out during startup. More of it."
        )

    def init(self, address, **how):
        self.starts -= 1
        if self.starts:
            raise self.error


@pytest.fixture
def no_ray(monkeypatch):
    monkeypatch.setattr(ray_address, "_on_loopback", contextlib.nullcontext)


def test_a_ray_that_does_not_start_in_time_is_tried_again(no_ray, capsys):
    ray_address.join_ray(SlowRay(3), None)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f"Ray has not started (The node timed out during startup); attempt {n}"
        for n in (2, 3)
    ]
    with pytest.raises(ClusterError, match="Ray did not start in 3 attempts"):
        ray_address.join_ray(SlowRay(4), None)


def test_other_errors_of_ray_are_raised_at_once(no_ray):
    ray = SlowRay(2, ValueError("an option"))
    with pytest.raises(ValueError, match="an option"):
        ray_address.join_ray(ray, None)
    assert ray.starts == 1


def test_a_process_refuses_a_number_of_workers_that_it_can_never_have_and_goes_on():
    with mw.cluster("inline") as found:
        kept = found.slice({"data": 2}).put(np.arange(3.0))
        with pytest.raises(ClusterError, match="100 workers in one process; wanted 1"):
            found.resize(100)
        assert kept.result().tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("where", [4, None, ("local", 4)])
def test_an_address_that_is_no_text_is_refused(where):
    with pytest.raises(ClusterError, match="wanted 'inline', 'local:4x2'"):
        mw.cluster(where)


@pytest.mark.parametrize(
    "use",
    [
        lambda connection: connection.call("status"),
        lambda connection: connection.store(np.ones(2)),
        lambda connection: connection.load(("reference",)),
    ],
)
def test_nothing_reaches_ray_after_it_was_left_which_would_start_another(
    monkeypatch, use
):
    context = SimpleNamespace(gcs_address="here")
    left = SimpleNamespace(
        is_initialized=lambda: False, get_runtime_context=lambda: context
    )
    monkeypatch.setattr(ray_connection, "require_ray", lambda: left)
    connection = ray_connection.RayConnection(None, True, True, "")
    with pytest.raises(ClusterError, match="has left Ray: the cluster was closed"):
        use(connection)
