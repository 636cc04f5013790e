"""A cluster of 4 Ray workers of 2 devices: equal numbers, and workers that are killed."""

import asyncio
import contextlib
import importlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from benchmarks.cluster.processes import descendants
from meshwright.errors import ClusterError
from meshwright.features.cluster import client, cluster_step
from meshwright.features.cluster.controller.gang import GangSize
from meshwright.features.cluster.controller.tenants import Tenant
from meshwright.features.cluster.engines.ray_address import is_of_this_machine
from meshwright.features.cluster.engines.ray_engine import RayEngine
from meshwright.features.cluster.wire.messages import Define, Free, HostArray, Put
from tests.features.cluster.hostile import Attacker
from zoo.gpt import workload

pytestmark = pytest.mark.cluster
pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    tenants = (
        Tenant("default", "its token", is_operator=True),
        Tenant("a", "token-a", max_bytes=100),
    )
    with mw.cluster("local:4x2", token="its token", tenants=tenants) as found:
        yield found


def sockets(pid):
    """Inodes of the sockets that a process has open."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            target = os.readlink(link)
            if target.startswith("socket:["):
                yield target[8:-1]


def test_all_ports_of_a_cluster_of_this_machine_are_on_the_loopback_interface(cluster):
    cluster.wait_until_ready()
    own = {inode for pid in descendants(os.getpid()) for inode in sockets(pid)}
    hosts = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in own:  # listens
                hosts.append(local.partition(":")[0])
    assert len(hosts) > 4
    v4, v6 = "0100007F", "0000000000000000FFFF0000" + "0100007F"
    assert set(hosts) <= {v4, v6}


def test_a_cluster_of_this_machine_is_known_by_its_address_beside_others(cluster):
    port = cluster.address.rpartition(":")[2]
    for host, is_known in (
        ("127.0.0.1", True),
        ("localhost", True),
        ("10.0.0.9", False),
    ):
        assert is_of_this_machine(f"{host}:{port}") == is_known
    assert not is_of_this_machine("127.0.0.1:1")


def test_training_equals_that_of_one_process_with_eight_devices(cluster):
    fn, (state, batch) = workload.tiny()
    tactics = workload.schedules[workload.best]
    local = mw.partition(fn, workload.mesh, tactics)
    remote = mw.partition(fn, cluster.slice(workload.mesh), tactics)
    own, theirs = state, state
    for _ in range(3):
        own, loss = local(own, batch)
        theirs, handle = remote(theirs, batch)
        np.testing.assert_allclose(float(handle), float(loss), rtol=1e-6)
    for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(theirs), strict=True):
        largest = float(np.max(np.abs(np.asarray(a, np.float64)), initial=1e-6))
        np.testing.assert_allclose(a, b.result(), rtol=0, atol=1e-3 * largest)


@pytest.mark.parametrize("name", ["gpt", "resnet", "moe", "sngan", "d4pg"])
def test_a_step_of_the_zoo_on_four_processes_equals_one_device(cluster, name):
    workload = importlib.import_module(f"zoo.{name}").workload
    fn, arguments = workload.tiny()
    tactics = workload.schedules[workload.best]
    report = mw.partition(fn, cluster.slice(workload.mesh), tactics).check(*arguments)
    assert report.ok, str(report)


def test_a_slice_of_some_workers_runs_beside_a_slice_of_others(cluster):
    def total(x):
        return (x * x).sum()  # over all devices of the slice

    halves = [cluster.slice({"data": 4}) for _ in range(2)]
    assert halves[0].devices != halves[1].devices
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    steps = [mw.partition(total, s, [mw.data_parallel("data", "x")]) for s in halves]
    found = [[step(x) for step in steps] for _ in range(5)]
    assert {float(y) for pair in found for y in pair} == {float(total(x))}


def test_an_array_that_was_sent_is_whole_after_a_step_has_cut_it(cluster):
    part = cluster.slice({"data": 8})
    step = mw.partition(lambda x: x + 1, part, [mw.data_parallel("data", "x")])
    x = np.arange(16, dtype=np.float32)
    handle = part.put(x)
    np.testing.assert_array_equal(handle, x)
    np.testing.assert_array_equal(step(handle), x + 1)
    np.testing.assert_array_equal(handle, x)  # each worker has two eighths now


def test_a_program_over_two_slices_is_exact_and_its_arrays_stay_on_the_workers(
    cluster, monkeypatch
):
    halves = [cluster.slice({"data": 4}) for _ in range(2)]
    all_eight, two = cluster.slice({"data": 8}), cluster.slice({"data": 2})
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    tactics = [mw.data_parallel("data", "x")]
    a = mw.partition(lambda x: (x * 2, x[:, 0].sum()), halves[0], tactics)
    b = mw.partition(lambda x, y: x + y, halves[1], tactics)
    c = mw.partition(lambda x: (x - 1, x.sum()), halves[1], tactics)
    d = mw.partition(lambda x: x * 3, all_eight, tactics)
    e = mw.partition(lambda x, first: x - first, two, tactics)

    def no_fetch(numbers):
        raise AssertionError(f"arrays {numbers} were read by the client")

    with monkeypatch.context() as patch:
        patch.setattr(halves[0].session, "fetch_all", no_fetch)
        double, column = a(x)
        sums = b(double, column)
        less, total = c(sums)
        found = e(d(less), double)  # from 4 devices to 8, then to 2
    wanted = x * 2 + x[:, 0].sum()
    assert float(total) == wanted.sum()
    np.testing.assert_array_equal(less, wanted - 1)
    np.testing.assert_array_equal(found, (wanted - 1) * 3 - x * 2)


def test_later_writes_of_the_caller_change_no_argument_and_no_array(cluster):
    part = cluster.slice({"data": 4})
    step = mw.partition(lambda x: x.sum(), part, [mw.data_parallel("data", "x")])
    x, found, kept = np.zeros((64, 8), np.float32), [], []
    for i in range(10):
        x[:] = i
        found.append(step(x))
        kept.append(part.put(x))
    x[:] = 99
    assert [float(each) for each in found] == [i * x.size for i in range(10)]
    for i, each in enumerate(kept):
        np.testing.assert_array_equal(each, i)


def test_a_nan_that_the_client_forbids_fails_the_program_on_all_workers(
    cluster, monkeypatch
):
    part = cluster.slice({"data": 8})
    x = np.arange(8, dtype=np.float32)

    def shift(x, by):
        return jnp.log(x - by), x.sum()

    step = mw.partition(shift, part, [mw.data_parallel("data", "x")])
    assert np.isnan(np.asarray(step(x, 3.0)[0])).sum() == 3
    monkeypatch.setattr(client, "forbidden_numbers", lambda: ("nan",))
    monkeypatch.setattr(cluster_step, "forbidden_numbers", lambda: ("nan",))
    log, total = step(x, 3.0)
    for each in (log, total):
        with pytest.raises(
            ClusterError, match=r"shift: result 0, float32\[8\], .* nan"
        ):
            each.result()
    np.testing.assert_array_equal(step(x, -1.0)[0], jnp.log(x + 1))  # and goes on


def test_workers_have_the_priority_of_their_client(cluster):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for place in cluster.wait_until_ready().places:
        pid = int(place.rpartition(":")[2])
        assert os.getpriority(os.PRIO_PROCESS, pid) == own


FAILING = """
import sys
import meshwright as mw
part = mw.cluster(sys.argv[1], token="token-a").slice({"data": 8})
print("has", part.devices, flush=True)
raise ValueError("the program is wrong")
"""


def test_a_client_that_ends_by_an_exception_frees_its_devices_at_once(cluster):
    cluster.wait_until_ready()
    ended = subprocess.run(
        [sys.executable, "-c", FAILING, cluster.address],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "has (0, 1," in ended.stdout, ended.stderr
    assert "the program is wrong" in ended.stderr
    assert cluster.status().sessions.get("a", 0) == 0


def test_keys_go_from_slice_to_slice_and_so_does_a_failure(cluster):
    halves = [cluster.slice({"data": 4}) for _ in range(2)]
    split = mw.partition(lambda key: jax.random.split(key)[0], halves[0])
    draw = mw.partition(lambda key: jax.random.uniform(key, (4,)), halves[1])
    key = jax.random.key(1)
    wanted = jax.random.uniform(jax.random.split(key)[0], (4,))
    np.testing.assert_array_equal(draw(split(key)), wanted)
    (number,) = halves[0].session.new_numbers(1)
    halves[0].session.submit(
        Define(number, b"no code", halves[0].devices, (), (), (16,), ())
    )
    (bad,) = halves[0].call(number, [], [jax.eval_shape(lambda: np.zeros(4, "f4"))])
    step = mw.partition(lambda x: x * 2, halves[1])
    with pytest.raises(ClusterError, match=r"KeyError|malformed"):
        step(bad).result()


def test_a_thousand_hostile_requests_over_ray_leave_honest_work_alone(cluster):
    part = cluster.slice({"data": 8})
    step = mw.partition(lambda x: x + x.sum() / 8, part)
    connection, rng = cluster._connection, random.Random(1)
    session = connection.call("open", "token-a").result()
    _, devices, _ = connection.call("slice", session, 4).result()
    own = Define(0, b"no code", devices, (), (8,), (8,), ())
    requests = [own, Put(1, connection.store(HostArray(np.zeros(1))), 8)]
    connection.call("submit", session, 0, requests).result()
    attacker = Attacker(session, devices, part.devices)
    x, before, served = np.ones(8, np.float32), cluster.status().attempt, []
    for turn in range(1000):
        x = step(x) if turn % 50 == 0 else x
        call = attacker.call(rng)
        error = connection.call(call[0], *call[1]).exception()
        if not isinstance(error, ClusterError):
            served.append((call, error))
    assert served == []
    np.testing.assert_array_equal(x, np.full(8, 2.0**20, np.float32))
    assert cluster.status().attempt == before
    connection.call("submit", session, attacker.num_sent, [Free((1,))]).result()


def wait_until_lost(ray, reference):
    """Ray keeps an object for a while after its owner has died."""
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        try:
            ray.get(reference, timeout=5)
        except ray.exceptions.GetTimeoutError:
            continue
        except ray.exceptions.RayError:
            return
        time.sleep(0.2)
    raise AssertionError("Ray still has the array of a client that was killed")


def test_an_array_whose_client_was_killed_fails_alone_and_honest_work_goes_on(cluster):
    ray = importlib.import_module("ray")

    class Client:
        def put(self):
            return [ray.put(HostArray(np.ones(8)))]

    killed = ray.remote(num_cpus=0)(Client).remote()
    (lost,) = ray.get(killed.put.remote())
    ray.kill(killed)
    wait_until_lost(ray, lost)
    part = cluster.slice({"data": 8})
    step, before = mw.partition(lambda x: x + 1, part), cluster.status().attempt
    x = step(np.zeros(8, np.float32))
    connection = cluster._connection
    session = connection.call("open", "token-a").result()
    connection.call("slice", session, 4).result()
    requests = [Put(1, lost, 64)]
    connection.call("submit", session, 0, requests).result()
    np.testing.assert_array_equal(step(x), np.full(8, 2, np.float32))
    with pytest.raises(ClusterError, match="lost with its client"):
        connection.call("fetch_all", session, 1, [1]).result()
    assert cluster.status().attempt == before
    for each in (cluster._session.name, session):
        connection.call("beat", each).result()
    with pytest.raises(ClusterError, match="session is unknown"):
        connection.call("beat", "nobody").result()
    connection.call("close", session).result()


def test_a_state_of_many_arrays_is_fetched_by_one_call(cluster, monkeypatch):
    part = cluster.slice({"data": 8})
    state = part.put([np.full(2, i, np.float32) for i in range(300)])
    methods, call = [], cluster._connection.call
    monkeypatch.setattr(
        cluster._connection, "call", lambda m, *a: methods.append(m) or call(m, *a)
    )
    found = part.fetch(state)
    assert [int(each[0]) for each in found] == list(range(300))
    assert [m for m in methods if m.startswith("fetch")] == ["fetch_all"]


def test_options_that_ray_does_not_know_are_an_error_and_no_endless_wait():
    engine = RayEngine("cpu", {"num_gpu": 1})
    with pytest.raises(ClusterError, match=r"2 workers .* did not start: .*num_gpu"):
        asyncio.run(engine.start(GangSize(2, 1), 1))


def test_a_second_cluster_of_another_size_in_one_process_is_refused(cluster):
    with pytest.raises(ClusterError, match="has a cluster of 4 workers of 2 devices"):
        mw.cluster("local:2x2", token="its token")
    with pytest.raises(ClusterError, match="token is that of no tenant"):
        mw.cluster("local:4x2", token="another")
    with mw.cluster("local:4x2", token="its token") as again:
        assert again.status().size == cluster.status().size
    assert cluster.wait_until_ready().places


def test_a_killed_worker_ends_its_gang_and_the_client_goes_on_with_the_next(cluster):
    part = cluster.slice({"data": 8})
    step = mw.partition(lambda x: x + x.sum(), part, [mw.data_parallel("data", "x")])
    x = part.put(np.ones(8, np.float32))
    assert float(np.asarray(step(x))[0]) == 9
    before = cluster.status()
    pids = [int(place.rpartition(":")[2]) for place in before.places]
    os.kill(pids[2], signal.SIGKILL)

    def go_on(x):
        for _ in range(1000):
            x = step(x)
            x.result()
            time.sleep(0.01)

    with pytest.raises(ClusterError, match=r"lost|gone"):
        go_on(x)
    again = step(part.put(np.ones(8, np.float32)))
    assert float(np.asarray(again)[0]) == 9
    assert cluster.status().attempt == before.attempt + 1
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)  # survivors of a dead gang were ended
    assert "lost" in "\n".join(map(str, cluster.events()))


def test_the_cluster_goes_on_with_fewer_and_with_more_workers(cluster):
    for workers in (2, 4):
        cluster.resize(workers)
        end = time.monotonic() + 120
        while len(cluster.status().places) != workers and time.monotonic() < end:
            time.sleep(0.1)
        part = cluster.slice({"data": 2 * workers})
        step = mw.partition(lambda x: x * 2, part, [mw.data_parallel("data", "x")])
        assert np.asarray(step(np.ones(8, np.float32))).sum() == 16
