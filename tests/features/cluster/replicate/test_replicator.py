"""Cross-replica primitives, inputs, and answers to what cannot be replicated."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import meshwright as mw
from meshwright.errors import ReplicaError
from meshwright.features.cluster.replicate.inputs import Context

X = np.arange(8, dtype=np.float32).reshape(4, 2)
"""Two numbers for each of four replicas."""


def results_of(replicator, fn):
    """What each replica gets from `fn` of its two numbers, and of the state 1."""

    def step_fn(state, batch):
        return state, fn(state, batch)

    _, results = replicator.step(step_fn)(jnp.float32(1), X)
    return np.asarray(results)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_primitives_give_all_replicas_the_same(devices):
    r = mw.Replicator(4, devices)
    np.testing.assert_array_equal(results_of(r, lambda s, x: r.sum(x)), 4 * [[12, 16]])
    np.testing.assert_array_equal(results_of(r, lambda s, x: r.mean(x)), 4 * [[3, 4]])
    np.testing.assert_array_equal(results_of(r, lambda s, x: r.gather(x)), 4 * [X])
    np.testing.assert_array_equal(
        results_of(r, lambda s, x: r.broadcast(x, 2)), 4 * [[4, 5]]
    )


def test_a_map_divides_items_among_replicas():
    r, items = mw.Replicator(4), jnp.arange(8.0)

    def square(x):
        return {"square": x * x}

    found = results_of(r, lambda s, x: r.map_gather(square, s * items)["square"])
    np.testing.assert_array_equal(found, 4 * [items**2])
    found = results_of(r, lambda s, x: r.map_reduce(square, s * items)["square"])
    np.testing.assert_array_equal(found, 4 * [140])


def linear_step(replicator, optimizer):
    """A step of a linear fit, whose results are the loss."""
    wrapped = replicator.wrap_optimizer(optimizer)

    def step_fn(state, batch):
        def loss_of(w):
            return jnp.mean((batch["x"] @ w - batch["y"]) ** 2)

        loss, gradient = jax.value_and_grad(loss_of)(state["w"])
        updates, rest = wrapped.update(gradient, state["rest"], state["w"])
        return {"w": optax.apply_updates(state["w"], updates), "rest": rest}, loss

    return step_fn


def linear_start(optimizer):
    w = jnp.zeros(3)
    return {"w": w, "rest": optimizer.init(w)}


def linear_input(context):
    rng = np.random.default_rng(0)
    while True:
        x = rng.standard_normal((8, 3), np.float32)
        yield context.share({"x": x, "y": x @ np.array([1.0, -2.0, 3.0], np.float32)})


def test_a_run_is_the_same_on_one_device_on_four_and_on_a_cluster():
    optimizer, found = optax.adam(0.1), []
    with mw.cluster("inline") as cluster:
        for on in (1, 4, cluster):
            r = mw.Replicator(4, on)
            step_fn, state = linear_step(r, optimizer), linear_start(optimizer)
            *_, last = r.run(step_fn, linear_input, state, steps=5)
            assert last.version == 5
            assert last.replicas == (0, 1, 2, 3)
            assert last.results.shape == (4,)
            found.append(np.asarray(last.state["w"]))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-5)
    assert np.abs(found[0]).min() > 0.1


def test_a_run_ends_with_the_batches_of_a_replica():
    def input_fn(context):
        yield from [np.zeros(context.batch(4))] * (3 - context.replica)

    r = mw.Replicator(2, 1)
    updates = r.run(lambda s, b: (s + 1, ()), input_fn, jnp.int32(0), steps=9)
    assert [update.version for update in updates] == [1, 2]


def test_a_context_shares_a_global_batch():
    batch = {"x": np.arange(12).reshape(6, 2)}
    parts = [Context(i, 3).share(batch)["x"] for i in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), batch["x"])
    assert Context(0, 3).batch(6) == 2


# -- what cannot be replicated -----------------------------------------------------------


def test_state_that_differs_between_replicas_is_named():
    r = mw.Replicator(4, 1)

    def step_fn(state, batch):
        mean = 0.9 * state["mean"] + 0.1 * jnp.mean(batch)
        return {"mean": mean, "steps": state["steps"] + 1}, ()

    state = {"mean": jnp.float32(0), "steps": jnp.int32(0)}
    with pytest.raises(
        ReplicaError, match=r"between replicas: state\.mean; average it"
    ):
        r.step(step_fn)(state, X)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (np.zeros((6, 2)), "batch has 6 examples, which 4 replicas do not divide"),
        ({"key": np.float32(0)}, r"batch\.key is a scalar"),
    ],
)
def test_a_batch_that_cannot_be_divided_is_named(batch, words):
    with pytest.raises(ReplicaError, match=words):
        mw.Replicator(4, 1).split(batch)
    with pytest.raises(ReplicaError, match=words):
        Context(0, 4).share(batch)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"replicas": 0}, "0 replicas; wanted a whole number"),
        ({"on": 3}, "3 devices do not divide 4 replicas"),
        ({"regime": "eager"}, "wanted 'synchronous' or 'asynchronous'"),
        ({"staleness": 2}, "staleness is 2 in the synchronous regime"),
        ({"staleness": -1, "regime": "asynchronous"}, "staleness is -1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(ReplicaError, match=words):
        mw.Replicator(**{"replicas": 4, **arguments})


@pytest.mark.parametrize(
    ("step_fn", "words"),
    [
        (lambda state, batch: state, "wanted a tuple of the new state and results"),
        (lambda state, batch: ((), state), "wanted the same structure"),
    ],
)
def test_a_step_that_returns_something_else_is_refused(step_fn, words):
    with pytest.raises(ReplicaError, match=words):
        mw.Replicator(4, 1).step(step_fn)(jnp.float32(0), X)


def test_a_primitive_outside_of_a_step_is_refused():
    r = mw.Replicator(4, 1)
    with pytest.raises(ReplicaError, match="mean is called outside of a step"):
        r.mean(1.0)
    optimizer = r.wrap_optimizer(optax.sgd(0.1))
    with pytest.raises(ReplicaError, match="wrap_optimizer is called outside"):
        optimizer.update(X, optimizer.init(X))


def test_batches_of_replicas_are_alike():
    def input_fn(context):
        yield np.zeros(2 + context.replica)

    r = mw.Replicator(2, 1)
    with pytest.raises(ReplicaError, match="wanted batches that are alike"):
        next(r.run(lambda s, b: (s, ()), input_fn, jnp.float32(0), steps=1))


@pytest.mark.parametrize("regime", ["synchronous", "asynchronous"])
def test_an_input_that_raises_names_its_replica(regime):
    def input_fn(context):
        if context.replica == 2:
            raise OSError("disk is gone")
        yield from linear_input(context)

    r, optimizer = mw.Replicator(4, 1, regime=regime), optax.sgd(0.1)
    run = r.run(linear_step(r, optimizer), input_fn, linear_start(optimizer), steps=100)
    with pytest.raises(ReplicaError, match="of replica 2 raised OSError: disk is gone"):
        list(run)
