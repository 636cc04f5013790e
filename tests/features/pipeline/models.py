"""A small language model with tied embeddings and a clipped gradient norm."""

import jax
import jax.numpy as jnp

import meshwright as mw
from meshwright.run.local.execute import run_program

LAYERS = 4


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


PARAMS = {
    "embedding": normal(24, 16),
    "layers": [
        {
            "up": normal(16, 32, seed=i) / 4,
            "bias": jnp.zeros(32),
            "down": normal(32, 16, seed=10 + i) / 6,
        }
        for i in range(LAYERS)
    ],
}
BATCH = {
    "x": jax.random.randint(jax.random.key(3), (16, 4), 0, 24),
    "y": jax.random.randint(jax.random.key(4), (16, 4), 0, 24),
}


def layer(h, weights):
    inner = jnp.tanh(h @ weights["up"] + weights["bias"])
    return h + inner @ weights["down"]


def loss_of(params, batch, marks=(2,)):
    h = params["embedding"][batch["x"]]
    for i, weights in enumerate(params["layers"]):
        if i in marks:
            h = mw.stage(h, f"from {i}")
        h = layer(h, weights)
    scores = jax.nn.log_softmax(h @ params["embedding"].T)
    return -jnp.mean(jnp.take_along_axis(scores, batch["y"][..., None], -1))


def train_step(params, batch, loss=loss_of):
    value, grads = jax.value_and_grad(loss)(params, batch)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    scale = 0.1 * jnp.minimum(1, 1 / norm)
    return jax.tree.map(lambda w, g: w - scale * g, params, grads), value


def unmarked_step(params, batch):
    return train_step(params, batch, lambda p, b: loss_of(p, b, ()))


def interpreted(task, layout):
    """A task run op by op on one device, in place of a compiled function."""
    del layout
    return lambda *given: tuple(run_program(task.program, given))
