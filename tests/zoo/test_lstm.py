import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo import lstm
from zoo.lstm import TINY, LanguageModel
from zoo.once import once


@pytest.fixture(scope="module")
def tiny():
    """The tiny program: its step, its state and one batch."""
    fn, (state, batch) = lstm.tiny()
    return fn, state, batch


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    "entry", lstm.workload.published, ids=[p.model for p in lstm.workload.published]
)
def test_parameters_are_as_published(entry):
    assert entry.count() == pytest.approx(entry.value, rel=entry.within)


def test_a_cell_is_its_closed_form():
    rng = np.random.default_rng(0)
    h, c = rng.normal(size=(2, 3, 5))
    below, recurrent = rng.normal(size=(3, 4, 5)), rng.normal(size=(5, 4, 5))
    gates = [below[:, i] + h @ recurrent[:, i] for i in range(4)]
    memory = sigmoid(gates[1]) * c + sigmoid(gates[0]) * np.tanh(gates[3])
    output = sigmoid(gates[2]) * np.tanh(memory)
    found = lstm.cell(*map(jnp.asarray, (h, c, below, recurrent)))
    np.testing.assert_allclose(found[0], output, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], memory, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("projection", [None, 3])
def test_a_layer_is_its_cell_step_by_step(projection):
    layer = lstm.Layer(units=6, projection=projection)
    x = jax.random.normal(jax.random.key(0), (2, 7, 4))
    params = once(layer.init)(jax.random.key(1), x)["params"]
    cell = jax.jit(lstm.cell)
    h, c = jnp.zeros((2, projection or 6)), jnp.zeros((2, 6))
    outputs = []
    for t in range(7):
        below = jnp.einsum("bd,dgh->bgh", x[:, t], params["input"]) + params["bias"]
        h, c = cell(h, c, below, params["recurrent"])
        h = h if projection is None else h @ params["projection"]
        outputs.append(h)
    found = once(layer.apply)({"params": params}, x)
    np.testing.assert_allclose(found, jnp.stack(outputs, axis=1), atol=1e-5)


def test_the_forget_gate_starts_open():
    params = lstm.Layer(4, None).init(jax.random.key(0), jnp.zeros((1, 2, 3)))["params"]
    assert params["bias"].sum(axis=1).tolist() == [0, 4, 0, 0]


def test_a_token_does_not_see_later_ones(tiny):
    _, state, batch = tiny
    scores = jax.jit(LanguageModel(TINY).apply)
    inputs = jnp.asarray(batch["inputs"])
    before = scores({"params": state.params}, inputs)
    after = scores({"params": state.params}, inputs.at[:, 30:].set(65))
    np.testing.assert_allclose(before[:, :30], after[:, :30], atol=1e-6)
    assert not np.allclose(before[:, 30:], after[:, 30:], atol=1e-3)


def test_a_step_drops_other_values_with_another_key(tiny):
    _, state, batch = tiny
    loss = jax.jit(lambda key: lstm.loss(TINY, state.params, {**batch, "key": key}))
    one, two = jax.random.split(jax.random.key(0))
    assert loss(one) == loss(one)
    assert loss(one) != loss(two)


def test_gradients_are_no_longer_than_the_clip():
    clip = lstm.optimizer(lstm.SIZES["ptb_medium"])
    gradients = {"a": jnp.full(100, 3.0), "b": jnp.full((2, 2), -4.0)}
    updates, _ = clip.update(gradients, clip.init(gradients))
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(updates)))
    assert norm == pytest.approx(5.0, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": "lion"}, "no optimizer 'lion'; there are sgd, adagrad, adam"),
        ({"dropout": 1.0}, "dropout is a share of values"),
        ({"projection": 0}, "projection is at least 1, not 0"),
        ({"projection": 9}, r"fewer features than there are units \(8\), not 9"),
    ],
)
def test_a_config_that_does_not_fit_says_why(changes, words):
    sizes = {"layers": 1, "features": 8, "units": 8, "projection": None, "vocab": 16}
    rest = {"sequence": 4, "batch": 2, "dropout": 0.0, "optimizer": "sgd"}
    with pytest.raises(ValueError, match=words):
        lstm.Config(**{**sizes, **rest, "rate": 1.0, "clip": 1.0, **changes})


@pytest.mark.slow
def test_the_tiny_model_learns_the_text():
    losses = [row["loss"] for row in lstm.train(seed=0, steps=30)]
    assert losses[0] > 5.0
    assert losses[-1] < 3.3


@pytest.mark.slow
def test_the_tiny_model_learns_more_than_how_often_letters_are_used():
    """Single letters leave 3 nats; a memory of words does better."""
    losses = [row["loss"] for row in lstm.train(seed=1, steps=150)]
    assert np.mean(losses[-10:]) < 2.3
