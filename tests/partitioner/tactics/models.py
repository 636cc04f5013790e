"""Small models in plain JAX, and train steps of them with Adam."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

B, S, D, N, F = 8, 4, 16, 4, 32
HEAD = D // N


def normal(*shape):
    """An array of NumPy's, the same for the same shape."""
    rng = np.random.default_rng(sum(shape) + len(shape))
    return (rng.standard_normal(shape) * 0.3).astype(np.float32)


def adam_step(loss):
    """`step(state, batch) -> (state, loss)`, with names that say nothing."""

    def step(state, batch):
        params, m, v = state["p"], state["q"], state["r"]
        value, grads = jax.value_and_grad(loss)(params, batch)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, grads)
        params = jax.tree.map(
            lambda p, a, b: p - 0.01 * a / (jnp.sqrt(b) + 1e-3), params, m, v
        )
        return {"p": params, "q": m, "r": v}, value

    return step


def start(params):
    """Parameters with Adam at rest."""
    zeros = jax.tree.map(np.zeros_like, params)
    return {"p": params, "q": zeros, "r": zeros}


def examples(*shape):
    """Inputs [B, *shape] and targets like them."""
    return {"x": normal(B, *shape), "y": normal(B, *shape) * 0.5}


def mlp():
    """Two matmuls and their biases, on [B, D]."""

    def loss(p, batch):
        x = jax.nn.gelu(batch["x"] @ p["a"] + p["b"]) @ p["c"] + p["d"]
        return jnp.mean((x - batch["y"]) ** 2)

    params = {"a": normal(D, F), "b": normal(F), "c": normal(F, D), "d": normal(D)}
    return adam_step(loss), (start(params), examples(D))


def norm(x):
    """RMS norm without a scale."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attend(q, k, v):
    """Attention of [B, S, N, H] heads, all positions seen."""
    scores = jnp.einsum("bsnh,btnh->bnst", q, k) * HEAD**-0.5
    return jnp.einsum("bnst,btnh->bsnh", jax.nn.softmax(scores), v)


def llama_block(x, w):
    """Separate matrices for query, key, value, out; gate, up and down."""
    y = norm(x)
    q, k, v = ((y @ w[n]).reshape(*x.shape[:2], -1, HEAD) for n in ("q", "k", "v"))
    k, v = (jnp.repeat(a, N // a.shape[2], axis=2) for a in (k, v))
    x = x + attend(q, k, v).reshape(x.shape) @ w["o"]
    y = norm(x)
    return x + (jax.nn.silu(y @ w["g"]) * (y @ w["u"])) @ w["w"]


def llama_weights(kv_heads=N):
    """Weights of one block."""
    kv = kv_heads * HEAD
    return {
        "q": normal(D, D), "k": normal(D, kv), "v": normal(D, kv), "o": normal(D, D),
        "g": normal(D, F), "u": normal(D, F), "w": normal(F, D),
    }  # fmt: skip


def language_model(block, weights, layers=2, stacked=False):
    """Tokens in, embedded and read out by one matrix, through blocks in a loop or scan.

    The weights of the loop are a list, those of the scan one array per name.
    """

    def loss(p, batch):
        x = p["e"][batch["x"]]
        if stacked:
            body = jax.checkpoint(lambda x, w: (block(x, w), None))
            x, _ = jax.lax.scan(body, x, p["l"])
        else:
            for w in p["l"]:
                x = block(x, w)
        scores = jax.nn.log_softmax(norm(x) @ p["e"].T)
        return -jnp.mean(jnp.take_along_axis(scores, batch["y"][..., None], -1))

    each = [weights] * layers
    blocks = jax.tree.map(lambda *w: np.stack(w), *each) if stacked else each
    params = {"e": normal(64, D), "l": blocks}
    tokens = np.random.default_rng(0).integers(0, 64, (2, B, S), np.int32)
    batch = {"x": tokens[0], "y": tokens[1]}
    return adam_step(loss), (start(params), batch)


def bert_block(x, w):
    """A bias everywhere, norms after; three heads' matrices as [D, N, H]."""
    q, k, v = (jnp.einsum("bsd,dnh->bsnh", x, w[n]) + w[n + "b"] for n in "qkv")
    y = jnp.einsum("bsnh,nhd->bsd", attend(q, k, v), w["o"]) + w["ob"]
    x = norm(x + y)
    return norm(x + jax.nn.gelu(x @ w["u"] + w["ub"]) @ w["w"] + w["wb"])


def bert_weights():
    """Weights of one block."""
    heads = {n: normal(D, N, HEAD) for n in "qkv"}
    heads |= {n + "b": normal(N, HEAD) for n in "qkv"}
    rest = {"o": normal(N, HEAD, D), "ob": normal(D), "u": normal(D, F)}
    return heads | rest | {"ub": normal(F), "w": normal(F, D), "wb": normal(D)}


def fused_block(x, w):
    """Query, key and value in one matrix whose columns are split by halves of heads."""
    q, k, v = jnp.moveaxis(jnp.einsum("bsd,cndh->bscnh", norm(x), w["f"]), 2, 0)
    x = x + jnp.einsum("bsnh,nhd->bsd", attend(q, k, v), w["o"])
    return x + jax.nn.gelu(norm(x) @ w["u"]) @ w["w"]


def fused_weights():
    """Weights of one block."""
    return {
        "f": normal(3, N, D, HEAD), "o": normal(N, HEAD, D),
        "u": normal(D, F), "w": normal(F, D),
    }  # fmt: skip


EXPERTS, CAPACITY = 4, 4


def mixture(x, p):
    """GShard's layer over groups of tokens x [G, S, D], every token to one expert."""
    gates = jax.nn.softmax(x @ p["gate"])
    expert = jax.nn.one_hot(jnp.argmax(gates, -1), EXPERTS)
    place = (jnp.cumsum(expert, 1) - expert).astype(jnp.int32)
    sent = jax.nn.one_hot(place, CAPACITY) * expert[..., None]
    back = sent * jnp.sum(gates * expert, -1)[..., None, None]
    x = jnp.einsum("gsec,gsd->gecd", sent, x)
    x = jax.nn.relu(jnp.einsum("gecd,edf->gecf", x, p["up"]))
    x = jnp.einsum("gecf,efd->gecd", x, p["down"])
    return jnp.einsum("gsec,gecd->gsd", back, x)


def mixture_of_experts():
    """A dense layer, then a mixture with a residual."""

    def loss(p, batch):
        x = jnp.tanh(batch["x"] @ p["first"])
        return jnp.mean((x + mixture(x, p) - batch["y"]) ** 2)

    params = {
        "first": normal(D, D), "gate": normal(D, EXPERTS),
        "up": normal(EXPERTS, D, F), "down": normal(EXPERTS, F, D),
    }  # fmt: skip
    return adam_step(loss), (start(params), examples(S, D))


def lstm():
    """One LSTM over time, its gates in one matrix."""

    def loss(p, batch):
        def cell(carry, x):
            h, c = carry
            gates = jnp.concatenate([x, h], -1) @ p["w"]
            i, f, g, o = jnp.split(gates, 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

        zeros = jnp.zeros((B, D))
        (h, _), _ = jax.lax.scan(cell, (zeros, zeros), batch["x"].swapaxes(0, 1))
        return jnp.mean((h - batch["y"][:, 0]) ** 2)

    return adam_step(loss), (start({"w": normal(2 * D, 4 * D)}), examples(S, D))
