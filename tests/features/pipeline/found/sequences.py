"""Models of sequences: decoders, encoder-decoders, recurrent nets; lists and scans."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.features.pipeline.found.training import (
    VOCAB,
    WIDTH,
    Target,
    cross_entropy,
    tokens,
    trained,
    weights,
)

HEADS, KV = 4, 2


def norm(x, gain):
    """An RMS norm."""
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * jax.lax.rsqrt(mean + 1e-6)).astype(x.dtype) * gain.astype(x.dtype)


def block_weights(seed, is_gated=True, has_cross=False):
    """The weights of one layer."""
    size = WIDTH // HEADS
    found = {"norm": np.ones(WIDTH, np.float32)}
    for i, name in enumerate(("q", "cq") if has_cross else ("q",)):
        found[name] = weights(WIDTH, HEADS, size, seed=seed + i, fan_in=WIDTH)
    for i, name in enumerate(("k", "v", "ck", "cv") if has_cross else ("k", "v")):
        found[name] = weights(WIDTH, KV, size, seed=seed + 2 + i, fan_in=WIDTH)
    for i, name in enumerate(("o", "co") if has_cross else ("o",)):
        found[name] = weights(HEADS, size, WIDTH, seed=seed + 6 + i, fan_in=WIDTH)
    for i, name in enumerate(("up", "gate") if is_gated else ("up",)):
        found[name] = weights(WIDTH, 2 * WIDTH, seed=seed + 8 + i)
    return found | {"down": weights(2 * WIDTH, WIDTH, seed=seed + 10)}


def attend(w, x, y, prefix="", is_causal=True):
    """Grouped-query attention from x to y."""
    q = jnp.einsum("btd,dhk->bthk", x, w[prefix + "q"])
    k, v = (jnp.einsum("bsd,dhk->bshk", y, w[prefix + n]) for n in "kv")
    grouped = q.reshape(*q.shape[:2], KV, HEADS // KV, q.shape[-1])
    scores = jnp.einsum("btkgd,bskd->bkgts", grouped, k).astype(jnp.float32)
    scores = scores * q.shape[-1] ** -0.5
    if is_causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
        scores = jnp.where(mask, scores, -1e9)
    shares = jax.nn.softmax(scores).astype(x.dtype)
    heard = jnp.einsum("bkgts,bskd->btkgd", shares, v).reshape(q.shape)
    return jnp.einsum("bthk,hkd->btd", heard, w[prefix + "o"])


def layer(w, x, source=None, is_causal=True):
    """A layer of a decoder, or of an encoder-decoder if it reads a source."""
    w = jax.tree.map(lambda a: a.astype(x.dtype), w)
    y = norm(x, w["norm"])
    x = x + attend(w, y, y, is_causal=is_causal)
    if source is not None:
        x = x + attend(w, norm(x, w["norm"]), source, "c", is_causal=False)
    y = norm(x, w["norm"])
    inner = y @ w["up"]
    inner = jax.nn.silu(y @ w["gate"]) * inner if "gate" in w else jax.nn.gelu(inner)
    return x + inner @ w["down"]


def run_layers(layers, x, fn):
    """All layers, as a list or as stacked weights."""
    if isinstance(layers, list):
        for w in layers:
            x = fn(w, x)
        return x
    return jax.lax.scan(lambda x, w: (fn(w, x), None), x, layers)[0]


def layers_of(num_layers, is_scan, **options):
    """The weights of several layers, as a list or stacked."""
    found = [block_weights(20 * i, **options) for i in range(num_layers)]
    return jax.tree.map(lambda *each: np.stack(each), *found) if is_scan else found


def decoder(  # noqa: PLR0913  what models of this kind differ in
    is_scan: bool,
    num_layers: int = 4,
    *,
    is_tied: bool = True,
    is_gated: bool = True,
    remat: str = "",
    dtype: str = "float32",
    frozen: str = "",
    optimizer: optax.GradientTransformation | None = None,
) -> Target:
    """A decoder with grouped queries; frozen: "embedding", "layers", or "adapters"."""
    params = {
        "emb": weights(VOCAB, WIDTH, seed=99),
        "layers": layers_of(num_layers, is_scan, is_gated=is_gated),
    }
    if not is_tied:
        params["head"] = weights(WIDTH, VOCAB, seed=98)
    policy = (
        getattr(jax.checkpoint_policies, remat) if remat not in ("", "all") else None
    )
    fn = jax.checkpoint(layer, policy=policy) if remat else layer

    def loss(params, batch):
        if frozen in ("embedding", "layers"):
            key = {"embedding": "emb", "layers": "layers"}[frozen]
            params = params | {key: jax.lax.stop_gradient(params[key])}
        x = params["emb"].astype(dtype)[batch["x"]]
        x = run_layers(params["layers"], x, fn)
        head = params["head"] if "head" in params else params["emb"].T
        return cross_entropy(x @ head.astype(x.dtype), batch["y"])

    batch = {"x": tokens(1), "y": tokens(2)}
    if frozen != "adapters":
        return trained(loss, params, batch, optimizer)
    return _with_adapters(loss, params, batch, optimizer)


def _with_adapters(loss, params, batch, optimizer):
    """Only a low-rank addend of each down projection is trained."""
    down = params["layers"]["down"]
    adapters = {
        "a": weights(*down.shape[:-1], 4, seed=50),
        "b": weights(down.shape[0], 4, WIDTH, seed=51),
    }

    def adapted_loss(adapters, batch):
        frozen, data = batch
        added = frozen["layers"]["down"] + adapters["a"] @ adapters["b"]
        return loss(frozen | {"layers": frozen["layers"] | {"down": added}}, data)

    step, args = trained(adapted_loss, adapters, (params, batch), optimizer)
    *state, _ = args

    def adapted_step(*given):
        *state, frozen, data = given
        return step(*state, (frozen, data))

    return adapted_step, (*state, params, batch)


def encoder_decoder(
    is_scan: bool,
    num_layers: int = 2,
    *,
    is_shared: bool = True,
    remat: bool = False,
    optimizer: optax.GradientTransformation | None = None,
) -> Target:
    """An encoder-decoder; is_shared: whether both sides and the head share an embedding."""
    params = {
        "emb": weights(VOCAB, WIDTH, seed=99),
        "encoder": layers_of(num_layers, is_scan),
        "decoder": layers_of(num_layers, is_scan, has_cross=True),
    }
    if not is_shared:
        params["target"] = weights(VOCAB, WIDTH, seed=97)
        params["head"] = weights(WIDTH, VOCAB, seed=98)
    run = jax.checkpoint(layer, static_argnums=3) if remat else layer

    def loss(params, batch):
        x = params["emb"][batch["source"]]
        x = run_layers(params["encoder"], x, lambda w, x: run(w, x, None, False))
        y = params.get("target", params["emb"])[batch["x"]]
        y = run_layers(params["decoder"], y, lambda w, y: run(w, y, x, True))
        return cross_entropy(y @ params.get("head", params["emb"].T), batch["y"])

    batch = {"source": tokens(3, 6), "x": tokens(1), "y": tokens(2)}
    return trained(loss, params, batch, optimizer)


def recurrent(
    cell: str,
    num_layers: int = 3,
    *,
    is_scan: bool = False,
    is_tied: bool = True,
    is_bidirectional: bool = False,
    optimizer: optax.GradientTransformation | None = None,
) -> Target:
    """Stacked LSTMs, GRUs or linear recurrences, over time by a loop."""
    gates = {"lstm": 4, "gru": 3, "linear": 1}[cell]
    found = [
        {
            "in": weights(WIDTH, gates * WIDTH, seed=3 * i),
            "hidden": weights(WIDTH, gates * WIDTH, seed=3 * i + 1),
            "bias": np.zeros(gates * WIDTH, np.float32),
        }
        for i in range(num_layers)
    ]
    layers = jax.tree.map(lambda *each: np.stack(each), *found) if is_scan else found
    params = {"emb": weights(VOCAB, WIDTH, seed=99), "layers": layers}
    if not is_tied:
        params["head"] = weights(WIDTH, VOCAB, seed=98)

    def over_time(w, x, reverse=False):
        start = jnp.zeros((2, x.shape[0], WIDTH))
        inner = jnp.swapaxes(x @ w["in"] + w["bias"], 0, 1)
        _, found = jax.lax.scan(
            lambda c, t: CELLS[cell](w, c, t), start, inner, reverse=reverse
        )
        return jnp.swapaxes(found, 0, 1)

    def both(w, x):
        found = over_time(w, x)
        return found + over_time(w, x, reverse=True) if is_bidirectional else found

    def loss(params, batch):
        x = params["emb"][batch["x"]]
        x = run_layers(params["layers"], x, lambda w, x: x + both(w, x))
        return cross_entropy(x @ params.get("head", params["emb"].T), batch["y"])

    return trained(loss, params, {"x": tokens(1), "y": tokens(2)}, optimizer)


def _lstm(w, carry, x):
    h, c = carry
    i, f, g, o = jnp.split(x + h @ w["hidden"], 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return jnp.stack([h, c]), h


def _gru(w, carry, x):
    h, _ = carry
    first, second = jnp.split(w["hidden"], [2 * WIDTH], axis=-1)
    gates = jax.nn.sigmoid(x[..., : 2 * WIDTH] + h @ first)
    r, z = jnp.split(gates, 2, axis=-1)
    h = (1 - z) * h + z * jnp.tanh(x[..., 2 * WIDTH :] + (r * h) @ second)
    return jnp.stack([h, h]), h


def _linear(w, carry, x):
    h, _ = carry
    h = 0.9 * h + jnp.tanh(x)
    return jnp.stack([h, h]), h @ w["hidden"]


CELLS = {"lstm": _lstm, "gru": _gru, "linear": _linear}
