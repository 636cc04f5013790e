"""Small steps that the tests of the search plan."""

import jax
import jax.numpy as jnp

import meshwright as mw
from meshwright.machine import load_machine
from meshwright.planner.solve.space import Space

MESH = {"data": 4, "model": 2}


def shape(*extents, dtype="float32"):
    return jax.ShapeDtypeStruct(extents, dtype)


def mlp_step(params, x):
    """Two products, and a step down the gradient."""

    def loss(params):
        hidden = jnp.tanh(x @ params["up"])
        return jnp.mean((hidden @ params["down"] - x) ** 2)

    gradients = jax.grad(loss)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)


MLP = mlp_step, ({"up": shape(16, 64), "down": shape(64, 16)}, shape(32, 16))


def deep_step(params, x):
    """Eight layers alike, one after another."""

    def loss(params):
        y = x
        for layer in params:
            y = y + jnp.tanh(y @ layer["up"]) @ layer["down"]
        return jnp.mean(y**2)

    gradients = jax.grad(loss)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)


DEEP = (
    deep_step,
    ([{"up": shape(64, 256), "down": shape(256, 64)}] * 8, shape(512, 64)),
)


LARGE = (
    deep_step,
    ([{"up": shape(1024, 4096), "down": shape(4096, 1024)}] * 8, shape(65536, 1024)),
)


def recurrent(w, v, xs):
    """Turns that all read the same two weights, one of them in a loop of its own."""

    def turn(state, x):
        def again(state, _):
            return jnp.tanh(state @ v), None

        state = jnp.tanh(state @ w + x)
        return jax.lax.scan(again, state, None, length=3)[0], None

    return jax.lax.scan(turn, jnp.zeros_like(xs[0]), xs)[0]


RECURRENT = recurrent, (shape(64, 64), shape(64, 64), shape(5, 32, 64))


def scanned_step(params, x):
    """Scanned layers of masked attention with one head, and a step down the gradient."""
    mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))

    def layer(y, w):
        keys, values = y @ w["key"], y @ w["value"]
        scores = jnp.where(mask, jnp.einsum("btd,bsd->bts", y, keys), -1e9)
        return y + jnp.einsum("bts,bsd->btd", jax.nn.softmax(scores), values), None

    def loss(params):
        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    gradients = jax.grad(loss)(params)
    return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)


SCANNED = (
    scanned_step,
    (
        {"key": shape(8, 2048, 2048), "value": shape(8, 2048, 2048)},
        shape(64, 1024, 2048),
    ),
)


def pair(x, w, v):
    """Two products, no more: few enough choices to try them all."""
    return jnp.tanh(x @ w) @ v


PAIR = pair, (shape(8, 4), shape(4, 8), shape(8, 4))


def space_of(program, machine="tpu-v5e", devices=8):
    """A program on so many devices, ready to be priced.

    machine: the name of a preset, or a machine with as many devices.
    """
    fn, args = program
    if isinstance(machine, str):
        machine = load_machine(machine, devices)
    captured = mw.partition(fn, {"data": devices}).capture(*args)
    return Space(captured, machine)
