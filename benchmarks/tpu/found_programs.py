"""Train steps of ten styles, for `found_memory.py`.

Letters: B batch, S sequence, D features, N heads, H features of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

type Tree = Any
type Loss = Callable[[Tree, Any], Array]
type Case = tuple[Callable[..., Any], tuple[Any, Any]]
"""A train step and the shapes of its arguments, the state and the batch."""

VOCABULARY = 8192
DEPTH = 4


def whole(*shape: int) -> Any:
    """An array of integers of a shape."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def real(*shape: int, dtype: Any = jnp.float32) -> Any:
    """An array of floating-point numbers of a shape."""
    return jax.ShapeDtypeStruct(shape, dtype)


def trained(loss: Loss, params: Tree, batch: Any, optimizer: Any = None) -> Case:
    """A step of an optimizer, AdamW by default; a scalar loss beside the new state."""
    optimizer = optimizer or optax.adamw(1e-3)

    def step(state: Tree, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        updates, moments = optimizer.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": moments}, value

    state = {"params": params, "opt": jax.eval_shape(optimizer.init, params)}
    return step, (state, batch)


def cross_entropy(logits: Any, labels: Array) -> Array:
    """Mean surprise of integer labels, in float32."""
    wide = logits.astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(wide, labels).mean()


# -- Llamas ----------------------------------------------------------------------------


def rms_norm(h: Array, scale: Array) -> Array:
    """`h` over its root mean square, computed in float32."""
    wide = h.astype(jnp.float32)
    wide = wide * lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(h.dtype)


def rotary(x: Array) -> Array:
    """[B, S, N, H] turned by its positions."""
    half = x.shape[-1] // 2
    rates = 1e4 ** -(jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None, None] * rates
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1)


def attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention of [B, S, N, H], with the softmax in float32."""
    scores = jnp.einsum("bqnh,bsnh->bnqs", q, k) * q.shape[-1] ** -0.5
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    probs = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), -1e9), -1)
    return jnp.einsum("bnqs,bsnh->bqnh", probs.astype(v.dtype), v)


def llama_layer(head: int, h: Array, stored: Tree) -> Array:
    """One layer: attention, in groups if there are fewer keys, and SwiGLU."""
    w = {name: p.astype(h.dtype) for name, p in stored.items() if "norm" not in name}
    y = rms_norm(h, stored["norm1"])
    q, k, v = ((y @ w[n]).reshape(*h.shape[:2], -1, head) for n in "qkv")
    k, v = (jnp.repeat(a, q.shape[2] // a.shape[2], 2) for a in (k, v))
    mixed = attention(rotary(q), rotary(k), v)
    h = h + mixed.reshape(*h.shape[:2], -1) @ w["o"]
    y = rms_norm(h, stored["norm2"])
    return h + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]


def llama_shapes(width: int, kv_width: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of one layer."""
    return {
        "q": (width, width),
        "k": (width, kv_width),
        "v": (width, kv_width),
        "o": (width, width),
        "gate": (width, 4 * width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
        "norm1": (width,),
        "norm2": (width,),
    }


def llama(  # noqa: PLR0913
    width: int,
    head: int,
    batch: tuple[int, int],
    groups: int = 1,
    is_scanned: bool = True,
    is_rematted: bool = False,
    optimizer: Any = None,
) -> Case:
    """A Llama of four layers, as a scan over stacked weights or as a list of layers."""
    layer = partial(llama_layer, head)
    if is_rematted:
        layer = jax.checkpoint(layer)

    def loss(params: Tree, tokens: Array) -> Array:
        h = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        if is_scanned:
            h, _ = lax.scan(lambda h, w: (layer(h, w), None), h, params["layers"])
        else:
            for w in params["layers"]:
                h = layer(h, w)
        logits = rms_norm(h, params["norm"]) @ params["head"].astype(h.dtype)
        return cross_entropy(logits, tokens[:, 1:])

    shapes = llama_shapes(width, width // groups)
    layers: Any = {name: real(DEPTH, *s) for name, s in shapes.items()}
    if not is_scanned:
        layers = [{n: real(*s) for n, s in shapes.items()} for _ in range(DEPTH)]
    params = {
        "embed": real(VOCABULARY, width),
        "head": real(width, VOCABULARY),
        "norm": real(width),
        "layers": layers,
    }
    return trained(loss, params, whole(batch[0], batch[1] + 1), optimizer)


# -- perceptrons by two libraries ------------------------------------------------------


class Perceptron(nn.Module):
    """Dense layers of 4,096 with dropout left out, in flax."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        for _ in range(DEPTH):
            x = nn.relu(nn.LayerNorm()(nn.Dense(4096)(x)))
        return nn.Dense(1000)(x)


def flax_mlp() -> Case:
    """A classifier of 1,024 features in flax, trained by AdamW."""
    batch = {"x": real(65536, 1024), "y": whole(65536)}
    model = Perceptron()
    params = jax.eval_shape(model.init, jax.random.key(0), batch["x"])
    return trained(
        lambda p, b: cross_entropy(model.apply(p, b["x"]), b["y"]), params, batch
    )


def equinox_mlp() -> Case:
    """A regression by an equinox MLP under `vmap`, trained by momentum."""
    make = partial(eqx.nn.MLP, 512, 512, 2048, 6, jax.nn.gelu)
    model = eqx.filter_eval_shape(lambda key: make(key=key), jax.random.key(0))
    params, static = eqx.partition(model, lambda leaf: hasattr(leaf, "shape"))

    def loss(params: Tree, batch: Any) -> Array:
        x, y = batch
        return jnp.mean((jax.vmap(eqx.combine(params, static))(x) - y) ** 2)

    batch = real(65536, 512), real(65536, 512)
    return trained(loss, params, batch, optax.sgd(0.1, momentum=0.9))


# -- images ----------------------------------------------------------------------------


class VisionBlock(nn.Module):
    """A block of a vision transformer, before-normed."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        y = nn.LayerNorm(dtype=x.dtype)(x)
        y = nn.MultiHeadDotProductAttention(num_heads=6, dtype=x.dtype)(y, y)
        x = x + y
        y = nn.Dense(1536, dtype=x.dtype)(nn.LayerNorm(dtype=x.dtype)(x))
        return x + nn.Dense(384, dtype=x.dtype)(nn.gelu(y))


class Vision(nn.Module):
    """ViT-S/16 of a third of its depth."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = nn.Conv(384, (16, 16), (16, 16), dtype=jnp.bfloat16)(x)
        x = x.reshape(x.shape[0], -1, 384)
        places = self.param("places", nn.initializers.normal(0.02), x.shape[1:])
        x = x + places.astype(x.dtype)
        for _ in range(DEPTH):
            x = VisionBlock()(x)
        return nn.Dense(1000, dtype=x.dtype)(x.mean(1))


def vit() -> Case:
    """ViT-S of four layers on 1,024 images, trained by AdamW."""
    batch = {"x": real(1024, 224, 224, 3), "y": whole(1024)}
    model = Vision()
    params = jax.eval_shape(model.init, jax.random.key(0), batch["x"])
    return trained(
        lambda p, b: cross_entropy(model.apply(p, b["x"]), b["y"]), params, batch
    )


def convolutions() -> Case:
    """Residual convolutions of images of 32 x 32, trained by momentum."""

    def loss(params: Tree, batch: Any) -> Array:
        def conv(x: Array, w: Array, stride: int = 1) -> Array:
            spec = "NHWC", "HWIO", "NHWC"
            return lax.conv_general_dilated(
                x, w, (stride, stride), "SAME", dimension_numbers=spec
            )

        x = jax.nn.relu(conv(batch["x"], params["stem"]))
        for number, block in enumerate(params["blocks"]):
            y = jax.nn.relu(conv(x, block["first"], 1 + (number > 0)))
            x = conv(x, block["short"], 1 + (number > 0)) + conv(y, block["second"])
            x = jax.nn.relu(x)
        return cross_entropy(x.mean((1, 2)) @ params["head"], batch["y"])

    widths = 64, 128, 256, 512
    blocks = [
        {
            "first": real(3, 3, before, width),
            "second": real(3, 3, width, width),
            "short": real(1, 1, before, width),
        }
        for before, width in zip((64, *widths), widths, strict=False)
    ]
    params = {"stem": real(3, 3, 3, 64), "blocks": blocks, "head": real(512, 10)}
    batch = {"x": real(4096, 32, 32, 3), "y": whole(4096)}
    return trained(loss, params, batch, optax.sgd(0.1, momentum=0.9))


# -- experts and recurrence ------------------------------------------------------------

EXPERTS, WIDTH = 16, 512


def experts() -> Case:
    """Layers of 16 experts, of which each token takes two, by one-hot dispatch."""

    def layer(h: Array, w: Tree) -> Array:
        rows = rms_norm(h, w["norm"]).reshape(-1, 1024, WIDTH)  # groups of tokens
        probs = jax.nn.softmax((rows @ w["router"]).astype(jnp.float32), -1)
        gates, chosen = lax.top_k(probs, 2)
        one_hot = jax.nn.one_hot(chosen, EXPERTS).sum(2)
        place = (jnp.cumsum(one_hot, 1) - 1) * one_hot
        slots = jax.nn.one_hot(place, 2 * 1024 // EXPERTS) * one_hot[..., None]
        weighed = slots * (probs * one_hot / gates.sum(-1, keepdims=True))[..., None]
        inside = jnp.einsum("gtec,gtd->egcd", slots.astype(h.dtype), rows)
        y = jax.nn.relu(jnp.einsum("egcd,edf->egcf", inside, w["up"].astype(h.dtype)))
        y = jnp.einsum("egcf,efd->egcd", y, w["down"].astype(h.dtype))
        y = jnp.einsum("gtec,egcd->gtd", weighed.astype(h.dtype), y)
        return h + y.reshape(h.shape)

    def loss(params: Tree, tokens: Array) -> Array:
        h = params["embed"].astype(jnp.bfloat16)[tokens[:, :-1]]
        h, _ = lax.scan(lambda h, w: (layer(h, w), None), h, params["layers"])
        logits = h @ params["embed"].T.astype(h.dtype)
        return cross_entropy(logits, tokens[:, 1:])

    layers = {
        "norm": real(DEPTH, WIDTH),
        "router": real(DEPTH, WIDTH, EXPERTS, dtype=jnp.bfloat16),
        "up": real(DEPTH, EXPERTS, WIDTH, 2 * WIDTH),
        "down": real(DEPTH, EXPERTS, 2 * WIDTH, WIDTH),
    }
    params = {"embed": real(VOCABULARY, WIDTH), "layers": layers}
    return trained(loss, params, whole(128, 513))


def lstm() -> Case:
    """Two LSTMs of 1,024 over 128 tokens, one after another, trained by Adam."""
    width = 1024

    def cell(w: Tree, carry: Any, x: Array) -> Any:
        h, c = carry
        gates = x @ w["in"] + h @ w["own"] + w["bias"]
        i, f, g, o = jnp.split(gates, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def loss(params: Tree, tokens: Array) -> Array:
        x = params["embed"][tokens[:, :-1]].swapaxes(0, 1)
        for w in params["layers"]:
            zeros = jnp.zeros(x.shape[1:], x.dtype)
            _, x = lax.scan(partial(cell, w), (zeros, zeros), x)
        return cross_entropy(x @ params["head"], tokens[:, 1:].T)

    each = {
        "in": real(width, 4 * width),
        "own": real(width, 4 * width),
        "bias": real(4 * width),
    }
    params = {
        "embed": real(VOCABULARY, width),
        "head": real(width, VOCABULARY),
        "layers": [each, each],
    }
    return trained(loss, params, whole(512, 129), optax.adam(1e-3))


PROGRAMS: dict[str, Callable[[], Case]] = {
    "llama, scan": partial(llama, 512, 64, (128, 512)),
    "llama, scan, remat, groups": partial(
        llama, 1024, 128, (64, 1024), groups=4, is_rematted=True
    ),
    "llama, list": partial(llama, 512, 128, (128, 512), is_scanned=False),
    "llama, list, remat, momentum": partial(
        llama,
        768,
        64,
        (128, 512),
        is_scanned=False,
        is_rematted=True,
        optimizer=optax.sgd(0.1, momentum=0.9),
    ),
    "flax MLP": flax_mlp,
    "equinox MLP": equinox_mlp,
    "ViT": vit,
    "experts": experts,
    "convolutions": convolutions,
    "LSTM": lstm,
}
