"""A translator: an encoder, and a decoder that attends to it and to what it has said.

Letters: B batch, S source positions, T target positions, Q and K positions of queries
and of keys, D features, N heads, H features of a head, V vocab.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.language import clipped
from benchmarks.strangers.step import Target, Tree, bfloat16, shape, whole

HEAD = 64
BUCKETS, FAR = 32, 128
DROPOUT = 0.1
SMOOTHING = 0.1
Z_LOSS = 1e-4

# -- the model ---------------------------------------------------------------------


def scaled(x: Array, scale: Array) -> Array:
    """`x` [B, S, D] over its root mean square, scaled [D]; no mean, no shift."""
    square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return x * lax.rsqrt(square + 1e-6).astype(x.dtype) * scale


def dropped(x: Array, key: Array) -> Array:
    """`x` with a tenth of its elements zero, the others larger for it."""
    is_kept = jax.random.bernoulli(key, 1 - DROPOUT, x.shape)
    return jnp.where(is_kept, x / (1 - DROPOUT), 0)


def distance_buckets(distance: Array, count: int) -> Array:
    """A bucket of each distance: half of them for one each, half by its logarithm."""
    near = count // 2
    far = jnp.log(jnp.maximum(distance, 1) / near) / math.log(FAR / near)
    far = near + (far * (count - near)).astype(jnp.int32)
    return jnp.where(distance < near, distance, jnp.minimum(far, count - 1))


def bias_both_ways(table: Array, length: int) -> Array:
    """What [N, Q, K] is added to scores, of a table [BUCKETS, N] of relative places."""
    offset = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    bucket = distance_buckets(jnp.abs(offset), BUCKETS // 2)
    bucket = bucket + jnp.where(offset > 0, BUCKETS // 2, 0)
    return jnp.transpose(table[bucket], (2, 0, 1))


def bias_backward(table: Array, length: int) -> Array:
    """The same [N, Q, K] where no position sees a later one."""
    offset = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    bucket = distance_buckets(jnp.maximum(-offset, 0), BUCKETS)
    bias = jnp.transpose(table[bucket], (2, 0, 1))
    return jnp.where(offset > 0, -1e9, bias)


def attend(y: Array, seen: Array, weights: Tree, bias: Array, key: Array) -> Array:
    """[B, Q, D] of y [B, Q, D] that looks at seen [B, K, D]; bias [B or 1, N, Q, K].

    Scores are not divided by a root of H: Raffel et al., 2020, start smaller instead.
    """
    q = jnp.einsum("bqd,dnh->bqnh", y, weights["q"])
    k = jnp.einsum("bkd,dnh->bknh", seen, weights["k"])
    v = jnp.einsum("bkd,dnh->bknh", seen, weights["v"])
    scores = jnp.einsum("bqnh,bknh->bnqk", q, k).astype(jnp.float32) + bias
    shares = dropped(jax.nn.softmax(scores, axis=-1).astype(y.dtype), key)
    mixed = jnp.einsum("bnqk,bknh->bqnh", shares, v)
    return jnp.einsum("bqnh,nhd->bqd", mixed, weights["o"])


def feed_forward(y: Array, weights: Tree, key: Array) -> Array:
    """[B, S, D] of y [B, S, D], gated by a GELU."""
    inner = jax.nn.gelu(jnp.einsum("bsd,df->bsf", y, weights["wi_0"]))
    inner = inner * jnp.einsum("bsd,df->bsf", y, weights["wi_1"])
    return jnp.einsum("bsf,fd->bsd", dropped(inner, key), weights["wo"])


def encode(params: Tree, x: Array, bias: Array, key: Array) -> Array:
    """[B, S, D] of embedded x [B, S, D]; bias [B, N, S, S]."""
    for weights in params["layers"]:
        key, a, b, c, d = jax.random.split(key, 5)
        y = scaled(x, weights["n1"])
        x = x + dropped(attend(y, y, weights["self"], bias, a), b)
        y = scaled(x, weights["n2"])
        x = x + dropped(feed_forward(y, weights["mlp"], c), d)
    return dropped(scaled(x, params["norm"]), key)


def decode(
    params: Tree, x: Array, encoded: Array, biases: tuple[Array, Array], key: Array
) -> Array:
    """[B, T, D] of embedded x [B, T, D], encoded [B, S, D], a bias for each of both."""
    own, cross = biases
    for weights in params["layers"]:
        key, *keys = jax.random.split(key, 7)
        y = scaled(x, weights["n1"])
        x = x + dropped(attend(y, y, weights["self"], own, keys[0]), keys[1])
        y = scaled(x, weights["n2"])
        y = attend(y, encoded, weights["cross"], cross, keys[2])
        x = x + dropped(y, keys[3])
        y = scaled(x, weights["n3"])
        x = x + dropped(feed_forward(y, weights["mlp"], keys[4]), keys[5])
    return dropped(scaled(x, params["norm"]), key)


def translation_loss(params: Tree, batch: Tree, key: Array) -> tuple[Array, Tree]:
    """Mean over targets y [B, T] > 0 of smoothed cross-entropy, with a z-loss.

    x [B, S], y [B, T]: tokens, 0 where there are none.
    """
    params = bfloat16(params)
    source, target = batch["x"], batch["y"]
    keys = jax.random.split(key, 4)
    is_source = jnp.where(source > 0, 0.0, -1e9)[:, None, None, :]
    both = bias_both_ways(params["encoder"]["bias"], source.shape[1])
    x = dropped(params["emb"][source], keys[0])
    encoded = encode(params["encoder"], x, both[None] + is_source, keys[1])
    said = jnp.pad(target[:, :-1], ((0, 0), (1, 0)))
    own = bias_backward(params["decoder"]["bias"], target.shape[1])[None]
    x = dropped(params["emb"][said], keys[2])
    x = decode(params["decoder"], x, encoded, (own, is_source), keys[3])
    scores = jnp.einsum("btd,dv->btv", x, params["out"]).astype(jnp.float32)
    low = SMOOTHING / (scores.shape[-1] - 1)
    wanted = jax.nn.one_hot(target, scores.shape[-1]) * (1 - SMOOTHING - low) + low
    total = jax.nn.logsumexp(scores, axis=-1)
    losses = -jnp.sum(wanted * (scores - total[..., None]), axis=-1)
    losses = losses + Z_LOSS * jnp.square(total)
    counted = (target > 0).astype(jnp.float32)
    is_right = (jnp.argmax(scores, axis=-1) == target) * counted
    num_targets = jnp.maximum(jnp.sum(counted), 1.0)
    right = jnp.sum(is_right) / num_targets
    return jnp.sum(losses * counted) / num_targets, {"accuracy": right}


# -- Adafactor ---------------------------------------------------------------------


def factored_moments(param: Any) -> Tree:
    """Mean squares of rows and columns of a parameter; all of a vector's."""
    if len(param.shape) < 2:
        return {"full": shape(*param.shape)}
    return {
        "row": shape(*param.shape[:-1]),
        "column": shape(*param.shape[:-2], param.shape[-1]),
    }


def adafactor_update(
    param: Array, gradient: Array, moments: Tree, step: Array
) -> tuple[Array, Tree]:
    """A parameter and its moments after a step; Shazeer and Stern, 2018."""
    decay = 1 - step**-0.8
    square = jnp.square(gradient) + 1e-30
    if "full" in moments:
        full = decay * moments["full"] + (1 - decay) * square
        moments, update = {"full": full}, gradient * lax.rsqrt(full)
    else:
        row = decay * moments["row"] + (1 - decay) * jnp.mean(square, -1)
        column = decay * moments["column"] + (1 - decay) * jnp.mean(square, -2)
        moments = {"row": row, "column": column}
        row = lax.rsqrt(row / jnp.mean(row, -1, keepdims=True))
        update = gradient * row[..., :, None] * lax.rsqrt(column)[..., None, :]
    update = update / jnp.maximum(1.0, jnp.sqrt(jnp.mean(jnp.square(update))))
    size = jnp.maximum(1e-3, jnp.sqrt(jnp.mean(jnp.square(param))))
    return param - jnp.minimum(1e-2, lax.rsqrt(step)) * size * update, moments


def translation_step(state: Tree, batch: Tree) -> tuple[Tree, Tree]:
    """New state, and what is told of the step."""
    count = state["count"] + 1
    key = jax.random.fold_in(jax.random.key(17), count)
    loss_fn = jax.value_and_grad(translation_loss, has_aux=True)
    (loss, told), gradients = loss_fn(state["params"], batch, key)
    params, tree = jax.tree.flatten(state["params"])
    gradients = tree.flatten_up_to(clipped(gradients, 1.0))
    moments = tree.flatten_up_to(state["moments"])
    step = count.astype(jnp.float32)
    new = [
        adafactor_update(param, gradient, moment, step)
        for param, gradient, moment in zip(params, gradients, moments, strict=True)
    ]
    params, moments = zip(*new, strict=True)
    state = {
        "params": tree.unflatten(params),
        "moments": tree.unflatten(moments),
        "count": count,
    }
    return state, {"loss": loss, **told}


def seq2seq(
    batch: int = 64, source: int = 512, target: int = 256, width: int = 1024
) -> Target:
    """Raffel et al., 2020, version 1.1: three layers each way, in bfloat16."""
    vocab, inner, heads = 32_128, 11 * width // 4, width // HEAD
    attention = {
        "q": shape(width, heads, HEAD), "k": shape(width, heads, HEAD),
        "v": shape(width, heads, HEAD), "o": shape(heads, HEAD, width),
    }  # fmt: skip
    mlp = {
        "wi_0": shape(width, inner), "wi_1": shape(width, inner),
        "wo": shape(inner, width),
    }  # fmt: skip
    layer = {"n1": shape(width), "n2": shape(width), "self": attention, "mlp": mlp}
    ends = {"bias": shape(BUCKETS, heads), "norm": shape(width)}
    params = {
        "emb": shape(vocab, width), "out": shape(width, vocab),
        "encoder": {"layers": [layer] * 3, **ends},
        "decoder": {
            "layers": [{**layer, "n3": shape(width), "cross": attention}] * 3, **ends,
        },
    }  # fmt: skip
    moments = jax.tree.map(factored_moments, params)
    state = {"params": params, "moments": moments, "count": whole()}
    texts = {"x": whole(batch, source), "y": whole(batch, target)}
    return translation_step, (state, texts)
