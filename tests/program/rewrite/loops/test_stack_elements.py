"""Stacked arrays divided into their elements."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from meshwright.features.pipeline.running.primitives import as_primitives
from meshwright.program.capture import capture
from meshwright.program.rewrite.loops.stack_elements import divide_stacks
from meshwright.program.rewrite.loops.unroll import unroll_scans
from meshwright.run.local.execute import run_program
from meshwright.run.local.layer_stack import LayerStack, join_stacks, split_stacks

W = {
    "up": jax.random.normal(jax.random.key(0), (3, 4, 4)),
    "gain": jnp.ones((3, 4)),
    "out": jax.random.normal(jax.random.key(2), (4, 3)),
}
X = jax.random.normal(jax.random.key(1), (2, 4))


def loss(w, x):
    def layer(h, w):
        return jnp.tanh(h @ w["up"].astype(h.dtype)) * w["gain"], None

    stack = {k: w[k] for k in ("up", "gain")}
    return ((jax.lax.scan(layer, x, stack)[0] @ w["out"]) ** 2).mean()


def step_of(optimizer, loss=loss):
    def step(state, x):
        w, inner = state
        value, grads = jax.value_and_grad(loss)(w, x)
        updates, inner = optimizer.update(grads, inner, w)
        return (optax.apply_updates(w, updates), inner), value

    return step, (W, optimizer.init(W))


OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "clipped adamw": optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-2)),
    "lamb": optax.lamb(1e-2),
    "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=2),
    "lion": optax.lion(1e-2),
}


def opened(fn, *args):
    program = capture(fn, args).program
    scans = [op for op in program.ops if op.kind == "scan"]
    return as_primitives(unroll_scans(program, dict.fromkeys(scans, lambda *_: None)))


def divided(fn, *args):
    program = opened(fn, *args)
    weights = range(len(program.inputs) - 1)  # all but the batch
    found = divide_stacks(program, weights)
    leaves = split_stacks(jax.tree.leaves(args), found.inputs)
    outputs = join_stacks(run_program(found.program, leaves), found.outputs)
    wanted = jax.tree.leaves(jax.jit(fn)(*args))
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=2e-4, atol=2e-5)
    return found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_each_layer_has_its_own_weights_gradients_and_optimizer_state(name):
    step, state = step_of(OPTIMIZERS[name])
    found = divided(step, state, X)
    leaves = jax.tree.leaves((state, X))
    stacks = [leaf.ndim > 1 and leaf.shape[0] == 3 for leaf in leaves]
    if name != "adafactor":  # its state of small leaves has other shapes
        assert [count > 0 for count in found.inputs] == stacks
    assert sum(found.inputs) == sum(found.outputs)


def test_no_stack_is_joined_under_an_elementwise_optimizer():
    step, state = step_of(OPTIMIZERS["clipped adamw"])
    program = divided(step, state, X).program
    shapes = {value.shape for op in program.ops for value in op.results}
    assert (3, 4, 4) not in shapes


def test_an_array_that_some_op_needs_whole_stays_as_it_is():
    def mixed(w, x):
        return loss(w, x) + jnp.sort(w["up"], axis=0).sum()

    step, state = step_of(OPTIMIZERS["sgd"], mixed)
    found = divided(step, state, X)
    assert sum(count > 0 for count in found.inputs) == 1  # the gains


def test_one_element_that_is_read_alone_divides_nothing():
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: (x @ w[0]).sum())(w), x

    assert not any(divided(step, W["up"], X).inputs)


def test_a_stack_of_layers_reads_as_an_array():
    whole = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    (stack,) = join_stacks(split_stacks([whole], [3]), [3])
    assert isinstance(stack, LayerStack)
    assert (stack.shape, stack.dtype, stack.ndim, len(stack)) == (
        (3, 2),
        "float32",
        2,
        3,
    )
    np.testing.assert_array_equal(stack, whole)
    np.testing.assert_array_equal(jax.device_get(stack), whole)
    np.testing.assert_array_equal(jnp.asarray(stack), whole)
    np.testing.assert_array_equal(stack[1], whole[1])
    np.testing.assert_array_equal(stack[1:], whole[1:])
    np.testing.assert_array_equal(list(stack), list(whole))
    assert split_stacks([stack], [3])[2] is stack.elements[2]


def test_a_split_of_a_stack_is_no_slice_of_one_element():
    def halves(w, x):
        first, second = jnp.split(w, 2)
        return x @ first[0] + x @ second[0]

    args = jax.random.normal(jax.random.key(0), (2, 4, 4)), X
    program = capture(halves, args).program
    again = divide_stacks(program, [0]).program
    assert run_program(again, args)[0].shape == X.shape
