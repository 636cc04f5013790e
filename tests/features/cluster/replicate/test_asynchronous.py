"""Asynchronous replicas: equal to lockstep without staleness; what they refuse; actors."""

import threading
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import meshwright as mw
from meshwright.app.check.compare_outputs import check_outputs
from meshwright.errors import ReplicaError
from meshwright.features.cluster.replicate.exchange import lockstep_mean
from meshwright.features.cluster.replicate.lockstep import map_replicas
from tests.features.cluster.replicate.cases import d4pg_case


def momentum_step(replicator):
    """Two parameters with an optimizer each, a running mean, and the loss as result."""
    sgd = replicator.wrap_optimizer(optax.sgd(0.05, momentum=0.9))
    adam = replicator.wrap_optimizer(optax.adam(0.1))

    def step_fn(state, batch):
        def loss_of(params):
            guess = batch["x"] @ params["w"] + params["b"]
            return jnp.mean((guess - batch["y"]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(state["params"])
        w, w_rest = sgd.update(gradients["w"], state["w_rest"])
        b, b_rest = adam.update(gradients["b"], state["b_rest"])
        params = optax.apply_updates(state["params"], {"w": w, "b": b})
        seen = replicator.mean(jnp.mean(batch["x"], axis=0))
        new = {"params": params, "w_rest": w_rest, "b_rest": b_rest}
        return new | {"mean": 0.9 * state["mean"] + 0.1 * seen}, loss

    return step_fn


def momentum_start():
    params = {"w": jnp.zeros(3), "b": jnp.zeros(())}
    return {
        "params": params,
        "w_rest": optax.sgd(0.05, momentum=0.9).init(params["w"]),
        "b_rest": optax.adam(0.1).init(params["b"]),
        "mean": jnp.zeros(3),
    }


def inputs(context):
    rng = np.random.default_rng(1)
    while True:
        x = rng.standard_normal((8, 3), np.float32)
        y = x @ np.array([1.0, -2.0, 3.0], np.float32) + 1
        yield context.share({"x": x, "y": y.astype(np.float32)})


def assert_near(found, wanted):
    """Equal within the rounding of sums in another order."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        found,
        wanted,
    )


def synchronous_updates(steps):
    r = mw.Replicator(4, 1)
    return list(r.run(momentum_step(r), inputs, momentum_start(), steps=steps))


def test_without_staleness_every_update_is_the_synchronous_one():
    wanted = synchronous_updates(6)
    with mw.cluster("inline") as cluster:
        for on in (2, cluster):
            r = mw.Replicator(4, on, regime="asynchronous")
            found = list(r.run(momentum_step(r), inputs, momentum_start(), steps=6))
            assert [update.version for update in found] == [1, 2, 3, 4, 5, 6]
            for a, b in zip(found, wanted, strict=True):
                assert_near((a.state, a.results), (b.state, b.results))
                assert (a.replicas, a.num_dropped) == ((0, 1, 2, 3), 0)


@pytest.mark.slow
def test_d4pg_without_staleness_is_the_synchronous_one():
    make, state, batch = d4pg_case()
    leaves, tree = jax.tree.flatten((state, batch))
    r = mw.Replicator(2, 1)
    step = map_replicas(r._bind(make(r), lockstep_mean))

    def synchronous(*leaves):
        state, batch = jax.tree.unflatten(tree, leaves)
        return jax.tree.leaves(step(state, r.split(batch)))

    def asynchronous(leaves):
        state, batch = jax.tree.unflatten(tree, leaves)
        r = mw.Replicator(2, 1, regime="asynchronous")
        run = r.run(make(r), lambda c: iter([c.share(batch)]), state, steps=1)
        (update,) = run
        return jax.tree.leaves((update.state, update.results))

    paths = [f"output {i}" for i in range(len(asynchronous(leaves)))]
    report = check_outputs(paths, synchronous, asynchronous, leaves)
    assert report.ok, str(report)


def test_the_server_does_not_compute_gradients_again():
    calls = []

    def count(x):
        calls.append(None)
        return np.zeros_like(x)

    def make(r):
        step_fn = momentum_step(r)

        def step(state, batch):
            zero = jax.pure_callback(count, jnp.zeros(()), jnp.zeros(()))
            return step_fn(state, batch | {"x": batch["x"] + zero})

        return step

    r = mw.Replicator(2, 1, regime="asynchronous")
    assert len(list(r.run(make(r), inputs, momentum_start(), steps=3))) == 3
    computed = len(calls)
    assert (
        6 <= computed <= 8
    )  # each replica once an update; one may be ahead at the end


def test_with_staleness_others_go_on_without_a_replica_that_stands_still():
    gone_on = threading.Event()

    def input_fn(context):
        for batch in inputs(context):
            while context.replica == 3 and not gone_on.wait(0.05):
                assert not context.is_stopped()
            yield batch

    r = mw.Replicator(4, 1, regime="asynchronous", staleness=8)
    run = r.run(momentum_step(r), input_fn, momentum_start(), steps=30)
    first = [next(run) for _ in range(20)]
    assert {i for update in first for i in update.replicas} <= {0, 1, 2}
    gone_on.set()
    last = [*run][-1]
    assert last.version == 30
    assert last.results.shape == (1,)  # each gradient is an update


def test_a_run_goes_on_until_all_batches_are_used():
    def input_fn(context):
        for _, batch in zip(range(3 + context.replica), inputs(context), strict=False):
            yield batch

    counts = {}
    for staleness in (0, 10**6):
        r = mw.Replicator(2, 1, regime="asynchronous", staleness=staleness)
        run = r.run(momentum_step(r), input_fn, momentum_start(), steps=100)
        counts[staleness] = len(list(run))
    assert counts == {0: 3, 10**6: 7}


# -- what asynchronous replicas refuse ---------------------------------------------------


def refuse(make_step, state, words):
    r = mw.Replicator(2, 1, regime="asynchronous")
    with pytest.raises(ReplicaError, match=words):
        list(r.run(make_step(r), inputs, state, steps=5))


def test_a_step_that_never_calls_the_optimizer_is_refused():
    def make(r):
        r.wrap_optimizer(optax.sgd(0.1))
        return lambda state, batch: (state + r.mean(jnp.mean(batch["x"])), ())

    refuse(make, jnp.float32(0), "never calls the update of an optimizer")


def test_state_that_differs_between_replicas_is_named():
    def make(r):
        step_fn = momentum_step(r)

        def step(state, batch):
            new, loss = step_fn(state, batch)
            return new | {"mean": jnp.mean(batch["x"], axis=0)}, loss

        return step

    refuse(make, momentum_start(), r"between replicas: state\.mean; average it")


def test_gradients_after_an_update_are_refused():
    def make(r):
        step_fn = momentum_step(r)

        def twice(state, batch):
            state, _ = step_fn(state, batch)
            return step_fn(state, batch)

        return twice

    refuse(make, momentum_start(), r"depends on an earlier mean.*averaged\.3")


def test_an_optimizer_in_a_loop_is_refused():
    def make(r):
        step_fn = momentum_step(r)

        def step(state, batch):
            return jax.lax.scan(lambda s, _: step_fn(s, batch), state, length=2)

        return step

    refuse(make, momentum_start(), "a loop or another transformation; in the asynch")


@pytest.mark.parametrize("name", ["sum", "gather", "broadcast"])
def test_primitives_that_need_all_replicas_are_refused(name):
    def make(r):
        return lambda state, batch: (getattr(r, name)(state), ())

    refuse(make, jnp.float32(0), f"{name} needs all replicas at once")


def test_asynchronous_replicas_have_no_common_step():
    r = mw.Replicator(2, 1, regime="asynchronous")
    with pytest.raises(ReplicaError, match="have no common step; use run"):
        r.step(momentum_step(r))


def test_a_step_that_raises_is_reported_with_its_error():
    def make(r):
        def step(state, batch):
            raise ZeroDivisionError("in the user's code")

        return step

    refuse(make, jnp.float32(0), "replica . raised ZeroDivisionError: in the user's")


# -- actors ------------------------------------------------------------------------------


@pytest.mark.parametrize("regime", ["synchronous", "asynchronous"])
def test_actors_see_new_states_and_end_with_the_run(regime):
    seen, ended = [], threading.Event()

    def actor(learner):
        for version, state in learner.states(every=2):
            seen.append((version, np.asarray(state["params"]["w"])))
        ended.set()

    r = mw.Replicator(2, 1, regime=regime)
    run = r.run(momentum_step(r), inputs, momentum_start(), steps=10**6, actors=[actor])
    for update in run:  # noqa: B007  the last one is read
        if len(seen) > 4:
            break
    run.close()
    assert ended.is_set()
    versions = [version for version, _ in seen]
    assert versions[0] == 0
    assert all(b - a >= 2 for a, b in pairwise(versions))
    assert versions[-1] <= update.version + 2 * 2
    assert not np.array_equal(seen[0][1], seen[-1][1])


@pytest.mark.parametrize("regime", ["synchronous", "asynchronous"])
def test_an_actor_that_raises_ends_the_run_though_replicas_wait_for_it(regime):
    def actor(learner):
        next(learner.states())
        raise RuntimeError("no pendulum")

    def input_fn(context):
        while not context.is_stopped():
            pass  # waits for experience that never comes
        yield from inputs(context)

    r = mw.Replicator(2, 1, regime=regime)
    run = r.run(momentum_step(r), input_fn, momentum_start(), steps=9, actors=[actor])
    with pytest.raises(ReplicaError, match="actor 0 raised RuntimeError: no pendulum"):
        next(run)
