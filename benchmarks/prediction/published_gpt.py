"""A GPT and its train step as Megatron-LM trains it, in plain JAX.

Products and activations have 16 bits; weights, Adam's moments and its update have 32.
Layers are scanned, and their forward pass is computed again in the backward pass if the
published run did so.

Letters: B batch, S sequence, D hidden size, N heads, K heads of keys, H size of a head, F
size of the MLP, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

import meshwright as mw

Weights = dict[str, Array]
BETAS, RATE = (0.9, 0.95), 1e-4


@dataclass(frozen=True, slots=True)
class Model:
    """The sizes of a GPT, and how it is trained.

    key_heads: heads of keys and values, fewer than `heads` for grouped queries.
    d_ff: size of the MLP. is_llama: whether the MLP has a gate, positions are rotary, and
        norms do not subtract the mean.
    is_fused: whether attention is cuDNN's kernel, without scores in memory.
    dtype: of products and activations.
    recompute: whether layers are computed again in the backward pass.
    dropout: share of the elements that are dropped, of attention and of both outputs.
    per_stage: layers of a pipeline stage. The layers are then a list; 0 stands for one
        loop over stacked weights. fewer: as many layers less on the first and last stage.
    """

    layers: int
    d_model: int
    heads: int
    vocab: int
    sequence: int
    key_heads: int = 0
    d_ff: int = 0
    is_llama: bool = False
    is_fused: bool = False
    dtype: str = "bfloat16"
    recompute: bool = False
    dropout: float = 0.0
    per_stage: int = 0
    fewer: int = 0

    @property
    def mlp(self) -> int:
        """Size of the MLP, by default four times the hidden size."""
        return self.d_ff or 4 * self.d_model

    @property
    def model_flops(self) -> float:
        """FLOPs of a token's forward and backward pass, without recomputation."""
        d, kv = (
            self.d_model,
            (self.key_heads or self.heads) * self.d_model // self.heads,
        )
        mats = 3 if self.is_llama else 2
        layer = d * (2 * d + 2 * kv + mats * self.mlp)
        scores = 2 * self.sequence * d
        return 6 * (self.layers * (layer + scores) + d * self.vocab)


def init(model: Model) -> dict[str, Any]:
    """Weights in 32 bits, those of all layers stacked."""
    d, h = model.d_model, model.d_model // model.heads
    k = model.key_heads or model.heads
    shapes = {
        "q": (d, model.heads, h),
        "k": (d, k, h),
        "v": (d, k, h),
        "out": (model.heads, h, d),
        "up": (d, model.mlp),
        "down": (model.mlp, d),
        "scale1": (d,),
        "scale2": (d,),
    }
    if model.is_llama:
        shapes["gate"] = (d, model.mlp)
    blocks: Any = [
        {n: jnp.zeros(s, "float32") for n, s in shapes.items()}
        for _ in range(model.layers)
    ]
    if not model.per_stage:
        blocks = {
            n: jnp.zeros((model.layers, *s), "float32") for n, s in shapes.items()
        }
    return {
        "embedding": jnp.zeros((model.vocab, d), "float32"),
        "head": jnp.zeros((d, model.vocab), "float32"),
        "scale": jnp.zeros((d,), "float32"),
        "blocks": blocks,
    }


def norm(model: Model, x: Array, scale: Array) -> Array:
    """`x` with mean 0 and variance 1 over its last dim, computed in 32 bits."""
    wide = x.astype("float32")
    centred = wide if model.is_llama else wide - wide.mean(-1, keepdims=True)
    y = centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return (y * scale).astype(x.dtype)


def dropped(x: Array, share: float, seed: int) -> Array:
    """`x` with a share of its elements set to 0, chosen by a hash of their positions."""
    if not share:
        return x
    position, stride = jnp.uint32(seed), 1
    for dim in reversed(range(x.ndim)):
        position += jnp.uint32(stride) * lax.broadcasted_iota("uint32", x.shape, dim)
        stride = stride * x.shape[dim] % 2**32
    mixed = (position ^ (position >> 15)) * jnp.uint32(2_246_822_519)
    mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(3_266_489_917)
    return jnp.where(mixed > jnp.uint32(share * 2**32), x / (1 - share), 0).astype(
        x.dtype
    )


def rotated(x: Array) -> Array:
    """Queries or keys [B, S, N, H] with rotary positions."""
    half = x.shape[-1] // 2
    rates = 10_000.0 ** (-jnp.arange(half) / half)
    angles = (jnp.arange(x.shape[1])[:, None] * rates)[:, None]
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    left, right = x[..., :half], x[..., half:]
    turned = (left * cos - right * sin, right * cos + left * sin)
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def attention(model: Model, x: Array, w: Weights) -> Array:
    """Causal attention of x [B, S, D]."""
    q = jnp.einsum("bsd,dnh->bsnh", x, w["q"])
    k = jnp.einsum("bsd,dnh->bsnh", x, w["k"])
    v = jnp.einsum("bsd,dnh->bsnh", x, w["v"])
    if model.is_llama:
        q, k = rotated(q), rotated(k)
    if model.is_fused:
        y = jax.nn.dot_product_attention(
            q, k, v, is_causal=True, implementation="cudnn"
        )
        return jnp.einsum("bsnh,nhd->bsd", y, w["out"])
    if model.key_heads:
        k = jnp.repeat(k, model.heads // model.key_heads, axis=2)
        v = jnp.repeat(v, model.heads // model.key_heads, axis=2)
    scores = jnp.einsum("bqnh,bknh->bnqk", q, k) * q.shape[-1] ** -0.5
    seen = jnp.tri(x.shape[1], dtype=bool)
    scores = jnp.where(seen, scores.astype("float32"), -1e30)
    shares = jax.nn.softmax(scores).astype(x.dtype)
    shares = dropped(shares, model.dropout, 1)
    y = jnp.einsum("bnqk,bknh->bqnh", shares, v)
    return jnp.einsum("bsnh,nhd->bsd", y, w["out"])


def block(model: Model, x: Array, wide: Weights) -> Array:
    """One layer on x [B, S, D]."""
    w = {n: v.astype(x.dtype) for n, v in wide.items() if not n.startswith("scale")}
    heard = attention(model, norm(model, x, wide["scale1"]), w)
    x = x + dropped(heard, model.dropout, 2)
    y = norm(model, x, wide["scale2"])
    if model.is_llama:
        return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]
    return x + dropped(jax.nn.gelu(y @ w["up"]) @ w["down"], model.dropout, 3)


def loss(model: Model, params: Mapping[str, Any], tokens: Array) -> Array:
    """Mean cross-entropy of the tokens after each of tokens [B, S + 1]."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = jnp.take(params["embedding"].astype(model.dtype), inputs, axis=0)
    layer = partial(block, model)
    if model.recompute:
        layer = jax.checkpoint(layer)
    if not model.per_stage:
        x, _ = lax.scan(lambda x, w: (layer(x, w), None), x, params["blocks"])
    else:
        for number, w in enumerate(params["blocks"]):
            if number and (number + model.fewer) % model.per_stage == 0:
                x = mw.stage(x, f"from_{number}")
            x = layer(x, w)
    logits = norm(model, x, params["scale"]) @ params["head"].astype(model.dtype)
    wide = logits.astype("float32")
    picked = jnp.take_along_axis(wide, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(wide, -1) - picked).mean()


def adam(state: dict[str, Any], grads: Any) -> dict[str, Any]:
    """The state after one step of Adam."""
    b1, b2 = BETAS
    count = state["count"] + 1
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], grads)
    first, second = 1 - b1**count, 1 - b2**count

    def updated(p: Array, m: Array, v: Array) -> Array:
        return p - RATE * (m / first) / (jnp.sqrt(v / second) + 1e-8)

    params = jax.tree.map(updated, state["params"], m, v)
    return {"params": params, "m": m, "v": v, "count": count}


def train_step(
    model: Model, micro_batches: int, state: dict[str, Any], tokens: Array
) -> tuple[dict[str, Any], Array]:
    """The next state and the mean loss of tokens [M, B, S + 1] or [B, S + 1]."""
    grad = jax.value_and_grad(partial(loss, model))
    if micro_batches == 1:
        mean, grads = grad(state["params"], tokens)
        return adam(state, grads), mean

    def add(sums: tuple[Array, Any], part: Array) -> tuple[tuple[Array, Any], None]:
        value, grads = grad(state["params"], part)
        return (sums[0] + value, jax.tree.map(jnp.add, sums[1], grads)), None

    zeros = jax.tree.map(jnp.zeros_like, state["params"])
    (mean, grads), _ = lax.scan(add, (jnp.zeros(()), zeros), tokens)
    return adam(state, grads), mean / micro_batches


def arguments(model: Model, batch: int, micro_batches: int = 1) -> tuple[Any, Any]:
    """The arguments of a train step as shapes."""

    def make() -> dict[str, Any]:
        params = init(model)
        zeros = jax.tree.map(jnp.zeros_like, params)
        return {
            "params": params,
            "m": zeros,
            "v": zeros,
            "count": jnp.zeros((), "int32"),
        }

    shape = (batch, model.sequence + 1)
    if micro_batches > 1:
        shape = (micro_batches, batch // micro_batches, model.sequence + 1)
    return jax.eval_shape(make), jax.ShapeDtypeStruct(shape, "int32")
