"""Steps whose batch, parameters or optimizer state are easily taken for something else."""

import jax
import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import TacticError
from meshwright.partitioner.structure.input_roles import find_roles

MESH = {"data": 4}
DP = mw.data_parallel("data")


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def cuts(plan):
    """The spec of each input that is cut."""
    return {leaf.path: leaf.spec for leaf in plan.inputs if any(leaf.spec)}


def adam(grads, params, mu, nu):
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
    nu = jax.tree.map(lambda n, g: 0.99 * n + 0.01 * g * g, nu, grads)
    new = jax.tree.map(lambda p, m, n: p - m / jnp.sqrt(n + 1e-8), params, mu, nu)
    return new, mu, nu


# -- 8-bit floats ------------------------------------------------------------------------


def scaled(x, history):
    """Values as flax's fp8 ops round them: by the largest magnitude of recent steps."""
    return x / jnp.max(history)


def fp8_step(params, fp8, batch):
    """A dense layer whose operands have histories of 1,024 magnitudes each."""

    def loss(p):
        x, w = scaled(batch["x"], fp8["x"]["amax_history"]), p["kernel"]
        y = x @ scaled(w, fp8["kernel"]["amax_history"]) + p["bias"]
        return jnp.mean((y - batch["y"]) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    fp8 = {
        "x": {"amax_history": jnp.roll(fp8["x"]["amax_history"], 1)},
        "kernel": {"amax_history": jnp.roll(fp8["kernel"]["amax_history"], 1)},
    }
    return jax.tree.map(lambda p, g: p - g, params, grads), fp8, value


def fp8_arguments(width=32):
    history = {"amax_history": shape(1024)}
    params = {"kernel": shape(width, width), "bias": shape(width)}
    batch = {"x": shape(16, width), "y": shape(16, width)}
    return params, {"x": history, "kernel": history}, batch


def test_a_history_of_magnitudes_is_no_batch():
    def step(params, fp8, batch):  # the histories are not handed back
        params, _, value = fp8_step(params, fp8, batch)
        return params, value

    plan = mw.partition(step, MESH, [DP]).plan(*fp8_arguments())
    assert cuts(plan) == dict.fromkeys(("batch.x", "batch.y"), (("data",), ()))


def test_zero_leaves_histories_and_biases_whole():
    args = fp8_arguments(1024)
    plan = mw.partition(fp8_step, MESH, [DP, mw.zero(3, "data")]).plan(*args)
    assert set(cuts(plan)) == {"params.kernel", "batch.x", "batch.y"}
    every = mw.zero(3, "data", min_elements=0)
    plan = mw.partition(fp8_step, MESH, [DP, every]).plan(*args)
    assert {"params.bias", "fp8.x.amax_history"} <= set(cuts(plan))


# -- minibatches made inside the step ----------------------------------------------------


def ppo_loss(params, images, actions):
    """The policy loss of a small convolutional network."""
    x = jax.lax.conv_general_dilated(
        images,
        params["conv"],
        (4, 4),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    x = jax.nn.relu(x).reshape(images.shape[0], -1) @ params["dense"]
    chosen = jnp.take_along_axis(jax.nn.log_softmax(x), actions[:, None], 1)
    return -jnp.mean(chosen)


def minibatches(data, count):
    return jax.tree.map(lambda x: x.reshape((count, -1, *x.shape[1:])), data)


def ppo_unrolled(state, images, actions):
    """Two updates by minibatches in a Python loop, as flax's example of PPO."""
    params, mu, nu = state["params"], state["mu"], state["nu"]
    total = 0.0
    for one, action in zip(*minibatches((images, actions), 2), strict=True):
        value, grads = jax.value_and_grad(ppo_loss)(params, one, action)
        params, mu, nu = adam(grads, params, mu, nu)
        total += value
    return {"params": params, "mu": mu, "nu": nu}, total


def ppo_indexed(state, images, actions):
    """The same updates, each by a minibatch that is picked by its number."""
    params, mu, nu = state["params"], state["mu"], state["nu"]
    total = 0.0
    batches, batched_actions = minibatches((images, actions), 2)
    for i in range(2):
        one = batches[i], batched_actions[i]
        value, grads = jax.value_and_grad(ppo_loss)(params, *one)
        params, mu, nu = adam(grads, params, mu, nu)
        total += value
    return {"params": params, "mu": mu, "nu": nu}, total


def ppo_scanned(state, images, actions):
    """Two updates by minibatches in a scan."""

    def update(carry, batch):
        value, grads = jax.value_and_grad(ppo_loss)(carry[0], *batch)
        return adam(grads, *carry), value

    carry = state["params"], state["mu"], state["nu"]
    carry, values = jax.lax.scan(update, carry, minibatches((images, actions), 2))
    return dict(zip(("params", "mu", "nu"), carry, strict=True)), jnp.mean(values)


def ppo_arguments():
    params = {"conv": shape(8, 8, 4, 8), "dense": shape(20 * 20 * 8, 4)}
    state = {"params": params, "mu": params, "nu": params}
    return state, shape(16, 84, 84, 4), shape(16, dtype=jnp.int32)


PPO = pytest.mark.parametrize("step", [ppo_unrolled, ppo_indexed, ppo_scanned])


@PPO
def test_minibatches_are_cut_where_the_step_makes_them(step):
    plan = mw.partition(step, MESH, [DP]).plan(*ppo_arguments())
    assert not cuts(plan)
    assert all("made inside the step" in line for line in plan.steps[1].refused)
    kinds = {kind for kind, count in plan.counts.items() if count}
    assert kinds == {"all_reduce"}  # of gradients and the loss


@PPO
def test_fsdp_after_data_parallelism_does_not_cut_the_batch_again(step):
    """Though no input is cut, the axis is in use."""
    both = mw.partition(step, MESH, [DP, mw.fsdp("data")]).plan(*ppo_arguments())
    alone = mw.partition(step, MESH, [mw.fsdp("data")]).plan(*ppo_arguments())
    assert cuts(both) == cuts(alone)
    assert not any(path in cuts(both) for path in ("images", "actions"))


@PPO
def test_moments_of_several_updates_are_no_parameters(step):
    work = mw.partition(step, MESH).decide(*ppo_arguments()).work
    found = find_roles(work)
    assert {work.paths[i] for i in found.params} == {
        "state.params.conv", "state.params.dense",
    }  # fmt: skip
    assert len(found.optimizer) == 4


def test_microbatches_are_cut_where_a_cut_of_the_length_would_gather():
    def loss(w, x):
        scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", x @ w["q"], x @ w["k"]))
        return jnp.mean((jnp.einsum("bst,btd->bsd", scores, x) @ w["o"] - x) ** 2)

    def step(w, x):
        def add(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(loss)(w, x)), None

        zeros = jax.tree.map(jnp.zeros_like, w)
        grads, _ = jax.lax.scan(add, zeros, x.reshape((2, -1, *x.shape[1:])))
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, grads)

    w = {name: shape(32, 32) for name in "qko"}
    plan = mw.partition(step, MESH, [DP]).plan(w, shape(16, 16, 32))
    kinds = {kind for kind, count in plan.counts.items() if count}
    assert kinds == {"all_reduce"}  # of gradients


# -- time before batch -------------------------------------------------------------------


def recurrent_step(params, batch):
    """A net over [time, batch] tokens, whose input product is outside the loop."""

    def loss(p):
        x = p["embedding"][batch["tokens"]] @ p["input"]

        def cell(h, x):
            h = jnp.tanh(x + h @ p["hidden"])
            return h, h

        _, hs = jax.lax.scan(cell, jnp.zeros_like(x[0]), x)
        scores = jax.nn.log_softmax(hs @ p["output"])
        return -jnp.mean(jnp.take_along_axis(scores, batch["next"][..., None], -1))

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


@pytest.mark.parametrize("vocabulary", [100, 10_000])  # the second dwarfs the loop
def test_of_time_and_batch_the_batch_is_cut(vocabulary):
    params = {
        "embedding": shape(vocabulary, 16), "input": shape(16, 32),
        "hidden": shape(32, 32), "output": shape(32, vocabulary),
    }  # fmt: skip
    tokens = shape(64, 8, dtype=jnp.int32)
    plan = mw.partition(recurrent_step, MESH, [DP]).plan(
        params, {"tokens": tokens, "next": tokens}
    )
    assert cuts(plan) == dict.fromkeys(("batch.tokens", "batch.next"), ((), ("data",)))
    assert plan.counts["all_gather"] == plan.counts["all_to_all"] == 0


# -- parameters elsewhere ----------------------------------------------------------------


def test_parameters_beside_the_data_in_one_argument_are_found():
    def predict(inputs):
        p = inputs["model"]
        return jnp.tanh(inputs["x"] @ p["up"] + p["bias"]) @ p["down"]

    model = {"up": shape(32, 64), "bias": shape(64), "down": shape(64, 8)}
    args = {"model": model, "x": shape(16, 32)}
    plan = mw.partition(predict, MESH, [DP, mw.zero(3, "data")]).plan(args)
    assert set(cuts(plan)) == {
        "inputs.model.up", "inputs.model.bias", "inputs.model.down", "inputs.x",
    }  # fmt: skip


def test_moments_that_no_output_replaces_do_not_give_the_batch():
    """The first guess is their 64 rows, which would cut weights."""

    def step(master, moments, x):
        def loss(p):
            return jnp.mean((jnp.tanh(x @ p["up"]) @ p["down"]) ** 2)

        grads = jax.grad(loss)(master)
        return jax.tree.map(lambda m, g: (0.9 * m + g).sum(), moments, grads)

    w = {"up": shape(64, 64), "down": shape(64, 8)}
    plan = mw.partition(step, MESH, [DP]).plan(w, w, shape(16, 64))
    assert cuts(plan) == {"x": (("data",), ())}


def test_a_refusal_names_the_argument_and_the_candidates():
    def attend(b):
        return jax.nn.softmax(b["q"] @ b["k"].T) @ b["v"]

    args = {name: shape(16, 32) for name in "qkv"}
    step = mw.partition(attend, MESH, [mw.zero(3, "data")])
    with pytest.raises(TacticError, match=r"params=.*'b\.\*' \(1,536 elements\)"):
        step.plan(args)


def test_a_pattern_under_another_path_is_suggested():
    def predict(state, x):
        return x @ state["params"]["w"]

    step = mw.partition(predict, MESH, [mw.zero(3, "data", params="params.**")])
    with pytest.raises(TacticError, match=r"did you mean '\*\*\.params\.\*\*'"):
        step.plan({"params": {"w": shape(32, 64)}}, shape(16, 32))


def test_work_that_stays_whole_is_a_warning_with_its_share():
    """The similarity of all pairs of stored vectors does not depend on the batch."""

    def step(w, stored, x):
        return (x @ w), jnp.sum((stored @ w) @ (stored @ w).T)

    args = shape(16, 16), shape(63, 16), shape(8, 16)
    tactic = mw.data_parallel("data", inputs="x")
    told = r"9\d% of the work .* whole along"
    with pytest.warns(mw.MeshwrightWarning, match=told) as found:
        plan = mw.partition(step, MESH, [tactic]).plan(*args)
    assert "of the work (FLOPs of matrix products)" in plan.steps[1].refused[-1]
    assert found[0].filename == __file__  # the user's line, not ours


# -- quantized weights -------------------------------------------------------------------


def scaled_weight(w):
    return w["int8"].astype(jnp.float32) * w["scale"]


@pytest.mark.parametrize(
    "step",
    [
        lambda w, x: jnp.tanh(x @ scaled_weight(w)),
        lambda w, x: jnp.tanh(scaled_weight(w) @ x),
    ],
    ids=["on the right", "on the left"],
)
def test_weights_that_are_scaled_before_a_product_are_weights(step):
    weight = {"int8": shape(32, 32, dtype=jnp.int8), "scale": shape(1, 32)}
    decided = mw.partition(step, MESH).decide(weight, shape(32, 32))
    found = find_roles(decided.work)
    paths = decided.captured.paths
    assert [paths[i] for i in found.params] == ["w.int8", "w.scale"]
    assert [paths[i] for i in found.data] == ["x"]


def test_a_cache_beside_scaled_weights_is_no_weight():
    def decode(w, cache, x):
        y = x @ scaled_weight(w)
        k, v = (jax.lax.dynamic_update_slice(c, y, (0, 0)) for c in cache)
        return jax.nn.softmax(x @ k.T) @ v, (k, v)

    weight = {"int8": shape(32, 32, dtype=jnp.int8), "scale": shape(1, 32)}
    cache = (shape(64, 32), shape(64, 32))
    decided = mw.partition(decode, MESH).decide(weight, cache, shape(8, 32))
    found = find_roles(decided.work)
    paths = decided.captured.paths
    assert [paths[i] for i in found.params] == ["w.int8", "w.scale"]
    assert [paths[i] for i in found.carried] == ["cache.0", "cache.1"]
