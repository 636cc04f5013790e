"""A train step with the sizes of DeepSeek-V3 (2024, section 4.2), in plain JAX.

61 layers of latent attention, the first 3 with an MLP, the others with a shared expert and
256 routed ones, of which a token visits 8. 4,096 tokens, 15,360 sequences a step, 2,048
H800. Tokens are routed in groups with places for each expert (GShard's einsums). Left out
are rotary positions, the balance of experts, and the prediction of a second token.

Letters: B batch, S sequence, D d_model, N heads, E experts, C places, F d_ff, G groups,
T tokens of a group.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

D, N, VOCAB, SEQUENCE, BATCH = 7168, 128, 129_280, 4096, 15_360
DENSE, SPARSE, E, CHOICES, GROUP = 3, 58, 256, 8, 512
PLACES = GROUP * CHOICES // E
BETAS, RATE = (0.9, 0.95), 2.2e-4

ATTENTION = {
    "norm": (D,), "q_down": (D, 1536), "q_norm": (1536,), "q_up": (1536, N, 192),
    "kv_down": (D, 512), "k_shared": (D, 64), "kv_norm": (512,), "kv_up": (512, N, 256),
    "out": (N, 128, D), "norm2": (D,),
}  # fmt: skip
MLP = {"gate": (D, 18_432), "up": (D, 18_432), "down": (18_432, D)}
EXPERTS = {
    "router": (D, E), "gate": (D, 2048), "up": (D, 2048), "down": (2048, D),
    "gates": (E, D, 2048), "ups": (E, D, 2048), "downs": (E, 2048, D),
}  # fmt: skip

Weights = dict[str, Array]


def norm(x: Array, scale: Array) -> Array:
    """`x` divided by the root of its mean square, computed in 32 bits."""
    wide = x.astype("float32")
    y = wide * lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
    return (y * scale).astype(x.dtype)


def attention(x: Array, w: Weights) -> Array:
    """Causal latent attention of x [B, S, D], scores in memory."""
    q = jnp.einsum("bsr,rnh->bsnh", norm(x @ w["q_down"], w["q_norm"]), w["q_up"])
    latent = norm(x @ w["kv_down"], w["kv_norm"])
    k, v = jnp.split(jnp.einsum("bsr,rnh->bsnh", latent, w["kv_up"]), 2, axis=-1)
    scores = jnp.einsum("bqnh,bknh->bnqk", q[..., :128], k)
    scores += jnp.einsum("bqnh,bkh->bnqk", q[..., 128:], x @ w["k_shared"])
    seen = jnp.tri(x.shape[1], dtype=bool)
    scores = jnp.where(seen, scores.astype("float32") * 192**-0.5, -1e30)
    y = jnp.einsum("bnqk,bknh->bqnh", jax.nn.softmax(scores).astype(x.dtype), v)
    return jnp.einsum("bsnh,nhd->bsd", y, w["out"])


def mlp(x: Array, w: Weights) -> Array:
    """A gated MLP."""
    return (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]


def experts(x: Array, w: Weights) -> Array:
    """The shared expert, and the routed ones, on x [B, S, D]."""
    tokens = x.reshape(x.shape[0], -1, GROUP, D)
    marks = jax.nn.sigmoid((tokens @ w["router"]).astype("float32"))
    weights, chosen = lax.top_k(marks, CHOICES)
    picked = jax.nn.one_hot(chosen, E)  # [B, G, T, choices, E]
    asked = picked.sum(-2)
    gates = (picked * (weights / weights.sum(-1, keepdims=True))[..., None]).sum(-2)
    place = (jnp.cumsum(asked, 2) - asked).astype("int32")
    sent = (asked[..., None] * jax.nn.one_hot(place, PLACES)).astype(x.dtype)
    inputs = jnp.einsum("bgtec,bgtd->bgecd", sent, tokens)
    hidden = jax.nn.silu(jnp.einsum("bgecd,edf->bgecf", inputs, w["gates"]))
    hidden *= jnp.einsum("bgecd,edf->bgecf", inputs, w["ups"])
    made = jnp.einsum("bgecf,efd->bgecd", hidden, w["downs"])
    weighed = sent * gates[..., None].astype(x.dtype)
    return mlp(x, w) + jnp.einsum("bgtec,bgecd->bgtd", weighed, made).reshape(x.shape)


def layer(kind: str, x: Array, wide: Weights) -> Array:
    """One layer on x [B, S, D]; kind: "dense" or "sparse"."""
    w = {n: v if "norm" in n else v.astype(x.dtype) for n, v in wide.items()}
    x = x + attention(norm(x, w["norm"]), w)
    y = norm(x, w["norm2"])
    return x + (mlp(y, w) if kind == "dense" else experts(y, w))


def loss(params: Mapping[str, Any], tokens: Array) -> Array:
    """Mean cross-entropy of the tokens after each of tokens [B, S + 1]."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = jnp.take(params["embedding"].astype("bfloat16"), inputs, axis=0)
    for kind in ("dense", "sparse"):
        run = jax.checkpoint(partial(layer, kind))
        x, _ = lax.scan(lambda x, w, run=run: (run(x, w), None), x, params[kind])
    logits = norm(x, params["norm"]) @ params["head"].astype("bfloat16")
    wide = logits.astype("float32")
    picked = jnp.take_along_axis(wide, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(wide, -1) - picked)


def step(state: dict[str, Any], tokens: Array) -> tuple[dict[str, Any], Array]:
    """One step of Adam; returns the new state and the loss."""
    value, gradients = jax.value_and_grad(loss)(state["params"], tokens)
    first, second = BETAS
    m = jax.tree.map(lambda m, g: first * m + (1 - first) * g, state["m"], gradients)
    v = jax.tree.map(
        lambda v, g: second * v + (1 - second) * g * g, state["v"], gradients
    )
    params = jax.tree.map(
        lambda w, m, v: w - RATE * m / (jnp.sqrt(v) + 1e-8), state["params"], m, v
    )
    return {"params": params, "m": m, "v": v}, value


def target() -> tuple[Any, tuple[Any, ...]]:
    """The step and its arguments as shapes."""
    shapes = {
        "embedding": (VOCAB, D), "head": (D, VOCAB), "norm": (D,),
        "dense": {n: (DENSE, *s) for n, s in (ATTENTION | MLP).items()},
        "sparse": {n: (SPARSE, *s) for n, s in (ATTENTION | EXPERTS).items()},
    }  # fmt: skip
    params = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct(s, "float32"),
        shapes,
        is_leaf=lambda s: isinstance(s, tuple),
    )
    tokens = jax.ShapeDtypeStruct((BATCH, SEQUENCE + 1), "int32")
    return step, ({"params": params, "m": params, "v": params}, tokens)
