"""Families that add up gradients in a loop: over microbatches, through layers and remat."""

from __future__ import annotations

from tests.fuzz.pool import NoFitError, Scope
from tests.fuzz.regions import Grow

_MODELS = {
    "scanned": "return lax.scan(lambda h, w: (layer(h, w), None), h, ws)[0]",
    "indexed": "for i in range({layers}):\n        "
    "h = layer(h, jax.tree.map(lambda a: a[i], ws))\n    return h",
    "indexed in a loop": "return lax.fori_loop(0, {layers}, lambda i, h: "
    "layer(h, jax.tree.map(lambda a: a[i], ws)), h)",
    "recurrent": "w = jax.tree.map(lambda a: a[0], ws)\n    "
    "return lax.scan(lambda s, r: (layer(s + r[None], w),) * 2, h, h)[1].sum(0)",
}
_LAYERS = (
    "jnp.tanh(h @ w[0].astype(h.dtype)) @ w[1].astype(h.dtype)",
    "h + 0.3 * jnp.tanh(h @ w[0].astype(h.dtype)) @ w[1].astype(h.dtype)",
    "jnp.tanh((h @ w[0].astype(h.dtype)).astype(jnp.float32) @ w[1]).astype(h.dtype)",
)
_ADDITIONS = (
    "t + g.astype(t.dtype)",
    "t + g / {turns}",
    "0.9 * t + g",
    "t + jnp.where(x[0, 0] > 0, g, 0.5 * g)",
    "t + lax.cond(x[0, 0] > 0, lambda g: g, jnp.zeros_like, g)",
)


def gradients(s: Scope, grow: Grow) -> None:
    """A scan over microbatches that adds up the gradients of stacked weights."""
    del grow
    data = s.pick(lambda v: v.is_float and len(v.shape) == 3 and v.shape[0] <= 8)
    turns, _, width = data.shape
    if data.size > 1024 or width > 16:
        raise NoFitError
    layers, wide = s.rng.choice((1, 2, 3)), s.draft.extent()
    weights = [s.input((layers, width, wide)), s.input((layers, wide, width))]
    name = s.draft.fresh("f")
    dtype = s.rng.choice(("float32", "float32", "bfloat16"))
    model = s.rng.choice(tuple(_MODELS.values())).format(layers=layers)
    layer = s.rng.choice(_LAYERS)
    wrapped = s.rng.choice(("{}", "jax.checkpoint({})", "jax.jit({})"))
    decay = s.rng.choice(("", "", " + 0.01 * sum(jnp.sum(w ** 2) for w in ws)"))
    addition = s.rng.choice(_ADDITIONS).format(turns=turns)
    code = f"""\
def {name}(ws, x):
    layer = {wrapped.format(f"lambda h, w: {layer}")}
    h = model_{name}(layer, ws, x.astype(jnp.{dtype}))
    return jnp.mean(h.astype(jnp.float32) ** 2){decay}
def model_{name}(layer, ws, h):
    {model}
def turn_{name}(total, x):
    gs = jax.grad({name})(({weights[0].name}, {weights[1].name}), x)
    return jax.tree.map(lambda t, g: {addition}, total, gs), None
"""
    start = f"jax.tree.map(jnp.zeros_like, ({weights[0].name}, {weights[1].name}))"
    call = f"{{0}}, {{1}} = lax.scan(turn_{name}, {start}, {data.name})[0]"
    s.emit_block(code + call, 2, 3.0)


FAMILIES = ((gradients, 3),)
