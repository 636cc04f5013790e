"""Steps on a cluster in this process: equal to local ones, and what handles promise."""

import copy
import gc
import pickle
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec

import meshwright as mw
from meshwright.errors import ClusterError, CompilerError
from meshwright.features.cluster.remote_array import host_array
from meshwright.features.cluster.wire.program_code import ProgramCode
from meshwright.features.cluster.worker.forbidden_numbers import require_allowed
from meshwright.run.compilers import confirm
from zoo.gpt import workload


@pytest.fixture(scope="module")
def cluster():
    with mw.cluster("inline") as found:
        yield found


@pytest.fixture
def mesh(cluster):
    found = cluster.slice({"data": 4, "model": 2})
    yield found
    found.release()


def scale(x, factor):
    return {"scaled": x * factor, "sum": jnp.sum(x)}


def test_training_equals_the_same_plan_on_local_devices(cluster):
    fn, (state, batch) = workload.tiny()
    tactics = workload.schedules[workload.best]
    local = mw.partition(fn, workload.mesh, tactics)
    remote = mw.partition(fn, cluster.slice(workload.mesh), tactics)
    own, theirs = state, state
    for _ in range(2):
        own, loss = local(own, batch)
        theirs, handle = remote(theirs, batch)
        assert float(handle) == float(loss)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.result()), own, theirs)


def test_results_have_the_structure_and_types_of_the_function(mesh):
    step = mw.partition(scale, mesh, [mw.data_parallel("data", "x")])
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    found = step(x, 2.0)
    assert repr(found["scaled"]) == "RemoteArray(float32[8, 2])"
    np.testing.assert_array_equal(found["scaled"], x * 2)
    assert float(found["sum"]) == x.sum()
    again = step(found["scaled"], 0.5)  # a handle is an argument like any array
    np.testing.assert_array_equal(again["scaled"], x)


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2), reason="calls no exported program with keys"
)
def test_keys_and_scalars_travel(mesh):
    def draw(key, n):
        return jax.random.uniform(key, (8,)) * n, jax.random.split(key)[0]

    key = jax.random.key(3)
    found, next_key = mw.partition(draw, mesh)(key, 3)
    wanted, wanted_key = jax.jit(draw)(key, 3)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        jax.random.key_data(next_key.result()), jax.random.key_data(wanted_key)
    )


def test_later_writes_of_the_caller_change_no_argument_and_no_array(mesh):
    step = mw.partition(lambda x: x.sum(), mesh, [mw.data_parallel("data", "x")])
    whole, found, kept = np.zeros((64, 16), np.float32), [], []
    for x in (whole, whole[:, ::2], whole.T, whole.astype(np.float64)):
        for i in range(10):
            x[:] = i
            found.append((step(x), i * x.size))
            kept.append((mesh.put(x), i))
        x[:] = 99
    assert [float(sum_) for sum_, _ in found] == [wanted for _, wanted in found]
    for array, i in kept:
        np.testing.assert_array_equal(array, i)


def test_a_jax_array_is_put_without_a_copy_and_keeps_its_numbers(mesh):
    x = jnp.arange(2**16, dtype=jnp.float32)
    value, _ = host_array(x, copy=True)
    assert np.shares_memory(value.data, np.asarray(x))
    array = mesh.put(x)
    jax.block_until_ready(jax.jit(lambda x: x * 0, donate_argnums=0)(x))
    np.testing.assert_array_equal(array, np.arange(2**16))


def test_a_donated_handle_cannot_be_used_again(mesh):
    step = mw.partition(lambda x: x + 1, mesh, donate_argnums=0)
    x = mesh.put(np.ones(8, np.float32))
    y = step(x)
    for use in (lambda: step(x), x.result):
        with pytest.raises(ClusterError, match="was donated"):
            use()
    assert y.result().sum() == 16


def test_a_closed_cluster_refuses_all_uses_and_closes_twice():
    cluster = mw.cluster("inline")
    part = cluster.slice({"data": 2})
    step = mw.partition(jnp.tanh, part)
    handle = step(np.ones(4, np.float32))
    cluster.close()
    cluster.close()
    uses = (
        cluster.status,
        lambda: cluster.slice({"data": 2}),
        lambda: part.put(1.0),
        lambda: step(np.ones(4, np.float32)),
        handle.result,
        handle.block_until_ready,
    )
    for use in uses:
        with pytest.raises(ClusterError, match="cluster was closed; make another"):
            use()


def test_a_released_slice_is_named_at_the_call_that_uses_it(cluster):
    part = cluster.slice({"data": 2})
    step = mw.partition(jnp.tanh, part)
    handle = step(np.zeros(4, np.float32))
    part.release()
    part.release()
    for use in (lambda: part.put(1.0), lambda: step(np.zeros(4, np.float32))):
        with pytest.raises(ClusterError, match=r"Slice\(data=2.*was released; take"):
            use()
    np.testing.assert_array_equal(handle, np.zeros(4))


def test_a_handle_is_formatted_as_its_number_and_not_copied(mesh):
    handle = mesh.put(np.float32(1.5))
    assert f"{handle:.3f} {handle}" == "1.500 RemoteArray(float32[])"
    for use in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ClusterError, match="cannot be copied or pickled: fetch"):
            use(handle)


def test_a_handle_is_true_or_false_as_its_number_is(mesh):
    step = mw.partition(lambda x: (x.sum() > 4, x.sum() > 99), mesh)
    true, false = step(np.ones(8, np.float32))
    assert true
    assert not false


def test_jax_waits_for_handles_as_it_does_for_arrays(cluster, mesh):
    loops = 3000
    step = mw.partition(
        lambda x: jax.lax.fori_loop(0, loops, lambda _, x: jnp.tanh(x @ x), x), mesh
    )
    x = jax.block_until_ready(step(np.eye(64, dtype=np.float32)))  # compiled
    session = cluster._connection._controller._sessions.known[cluster._session.name]
    y = jax.block_until_ready(step(x))
    assert session.arrays[y.number].made.done()
    y.donate()
    with pytest.raises(ClusterError, match="was donated"):
        jax.block_until_ready(y)


@pytest.mark.parametrize("leaf", ["text", object(), np.array(["a"])])
def test_what_is_no_array_is_refused_and_named(mesh, leaf):
    with pytest.raises(
        ClusterError, match=f"is a {type(leaf).__name__}; wanted an arr"
    ):
        mesh.put({"x": leaf})


def test_dropped_handles_are_freed_on_the_workers(cluster, mesh):
    worker = cluster._connection._controller.island.gang._worker
    step = mw.partition(lambda x: x + 1, mesh)
    x = mesh.put(np.zeros(8, np.float32))
    for _ in range(20):
        x = step(x)
    assert float(np.asarray(x)[0]) == 20
    del x
    gc.collect()
    end = time.monotonic() + 30
    while worker._arrays and time.monotonic() < end:
        cluster._session.beat()
        time.sleep(0.01)
    assert not worker._arrays


def printing(x):
    jax.debug.print("{}", x.sum())
    return x


def calling(x):
    jax.debug.callback(lambda x: None, x.sum())
    return x


def sending(x):
    return x + io_callback(lambda x: x, jax.ShapeDtypeStruct((), x.dtype), x.sum())


def asking(x):
    return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def looping(x):
    return jax.lax.scan(lambda x, _: (printing(x), None), x, None, length=2)[0]


@pytest.mark.parametrize("fn", [printing, calling, sending, asking, looping])
def test_a_function_that_calls_python_is_refused_with_the_line(mesh, fn):
    words = r"calls Python \(\w+ at .*test_cluster_step.py:\d+\).*remove the call"
    with pytest.raises(ClusterError, match=fn.__name__ + " " + words):
        mw.partition(fn, mesh)(np.ones(8, np.float32))
    step = mw.partition(lambda state, x: (state + x, x.sum()), mesh)
    x = jax.ShapeDtypeStruct((8,), np.float32)
    step.plan(x, x)
    with pytest.raises(ClusterError, match="init_fn " + words):
        step.init(lambda: fn(jnp.ones(8)), argnum=0)


def test_forbidden_numbers_of_the_client_travel_with_its_programs():
    jax_mesh = jax.make_mesh((8,), ("data",))
    x = jax.device_put(np.arange(8.0), NamedSharding(jax_mesh, PartitionSpec("data")))
    count = jnp.arange(3)
    require_allowed([x, count, jnp.log(x)], ["nan"], jax_mesh)
    with pytest.raises(ClusterError, match=r"result 1, float32\[8\], holds inf"):
        require_allowed([count, jnp.log(x)], ["nan", "inf"], jax_mesh)
    code = ProgramCode(b"program", (), (), (), "step", ("nan",))
    assert ProgramCode.from_bytes(code.to_bytes()) == code


def test_flatbuffers_that_are_not_installed_are_named(mesh, monkeypatch):
    monkeypatch.setattr(confirm, "_is_installed", lambda module: False)
    with pytest.raises(CompilerError, match=r"pip install 'meshwright\[cluster\]'"):
        mw.partition(lambda x: x + 1, mesh)(np.ones(8, np.float32))


@pytest.mark.parametrize("where", ["locall:4", None, 4])
def test_an_address_that_is_none_is_refused(where):
    with pytest.raises(ClusterError, match="local:4x2"):
        mw.cluster(where)


def test_ray_that_is_not_installed_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClusterError, match=r"pip install 'meshwright\[cluster\]'"):
        mw.cluster("local:2x1")


@pytest.fixture
def halves(cluster):
    found = [cluster.slice({"data": 4}), cluster.slice({"data": 2, "model": 2})]
    yield found
    for each in found:
        each.release()


def counted(cluster, monkeypatch):
    """The requests that the controller gets from now on, as they arrive."""
    found, admission = [], cluster._connection._controller._admission
    admit = admission._admit

    def seen(owner, request):
        found.append(request)
        admit(owner, request)

    monkeypatch.setattr(admission, "_admit", seen)
    return found


def test_a_program_over_two_slices_is_exact_and_never_sends_its_arrays_back(
    cluster, halves, monkeypatch
):
    first, second = halves
    assert set(first.devices).isdisjoint(second.devices)
    w = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    on_first = [mw.data_parallel("data", "x")]
    a = mw.partition(lambda x: x @ w, first, on_first)
    b = mw.partition(lambda x: (jnp.tanh(x), x.sum()), second, on_first)
    c = mw.partition(lambda x, y: (x * 2, y), second, [mw.shard({"x": 1}, "model")])
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    requests = counted(cluster, monkeypatch)
    between = a(x)
    tanh, total = b(between)
    double, again = c(between, total)
    y = np.asarray(x @ w)
    np.testing.assert_allclose(between, y, rtol=1e-6)
    own = between.result()
    np.testing.assert_array_equal(tanh, np.asarray(jnp.tanh(own)))
    np.testing.assert_array_equal(double, own * 2)
    assert float(again) == pytest.approx(float(own.sum()), rel=1e-6)
    kinds = [type(each).__name__ for each in requests if type(each).__name__ != "Free"]
    wanted = ["Define", "Put", "Call", "Define", "Transfer", "Call", "Define", "Call"]
    assert kinds == wanted  # the copy of `between` serves `b` and `c`


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2), reason="calls no exported program with keys"
)
def test_keys_and_scalars_go_from_slice_to_slice(halves):
    first, second = halves
    key, n = mw.partition(lambda key: (jax.random.split(key)[0], 3), first)(
        jax.random.key(1)
    )
    found = mw.partition(lambda key, n: jax.random.uniform(key, (4,)) * n, second)(
        key, n
    )
    wanted = jax.random.uniform(jax.random.split(jax.random.key(1))[0], (4,)) * 3
    np.testing.assert_array_equal(found, wanted)


def test_a_handle_of_another_slice_that_is_donated_cannot_be_used_again(halves):
    first, second = halves
    make = mw.partition(lambda x: x + 1, first, [mw.data_parallel("data", "x")])
    take = mw.partition(lambda x: x * 2, second, donate_argnums=0)
    between = make(np.ones(8, np.float32))
    result = take(between)
    with pytest.raises(ClusterError, match="was donated"):
        between.result()
    assert result.result().sum() == 32
    kept = make(np.ones(8, np.float32))
    copied = mw.partition(lambda x: x * 3, second)(kept)
    mw.partition(lambda x: x + 0, first, donate_argnums=0)(kept)  # after the copy
    assert copied.result().sum() == 48


def test_a_program_that_failed_on_one_slice_fails_its_readers_on_another(halves):
    first, second = halves
    make = mw.partition(lambda x: x + 1, first)
    x = first.put(np.ones(8, np.float32))
    handle = make(x)
    assert handle.result().sum() == 16
    worker = first.session.connection._controller.island.gang._worker
    program = worker._programs[max(worker._programs, key=lambda key: key[1])]
    program.__dict__["executable"] = None  # the next call raises
    bad = make(x)
    found = mw.partition(lambda x: x * 2, second)(bad)
    for each in (bad, found):
        with pytest.raises(ClusterError, match="NoneType"):
            each.result()
    assert mw.partition(lambda x: x * 2, second)(x).result().sum() == 16


def test_a_handle_of_another_session_goes_through_this_process(cluster, mesh):
    with mw.cluster("inline") as other:
        step = mw.partition(lambda x: x + 1, other.slice({"data": 8}))
        handle = step(np.ones(8, np.float32))
        found = mw.partition(lambda x: x * 2, mesh)(handle)
        assert found.result().sum() == 32
