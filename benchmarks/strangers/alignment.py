"""Post-training of a language model on answers of its own, some better than others.

Letters: B batch, S sequence, C positions of a chunk, D features, N heads, K heads of
keys, H features of a head, V vocab, L layers, U elements that share a scale.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.gpt import half
from benchmarks.strangers.language import rms_norm, rope
from benchmarks.strangers.step import Target, Tree, bfloat16, shape, whole

HEAD = 64
GROUP = 8  # answers to one question, side by side in the batch
MICROBATCHES = 8
CHUNK = 256
LOW, HIGH = 0.2, 0.28
DIVERGENCE = 0.04

# -- the model, of which there are two ---------------------------------------------


def attention(y: Array, weights: Tree, is_text: Array) -> Array:
    """[B, S, D] of y [B, S, D]: on positions so far that is_text [B, S] tells."""
    split = (*y.shape[:2], -1, HEAD)
    positions = jnp.arange(y.shape[1])
    q, k, v = (y @ weights[name] + weights[name + "_bias"] for name in "qkv")
    q, k = rope(q.reshape(split), positions), rope(k.reshape(split), positions)
    mask = is_text[:, None, None, :]
    mixed = jax.nn.dot_product_attention(
        q, k, v.reshape(split), mask=mask, is_causal=True
    )
    return mixed.reshape(y.shape) @ weights["o"]


def hidden(params: Tree, tokens: Array, is_kept: bool) -> Array:
    """Features [B, S, D] of tokens [B, S]; is_kept: products are, for the way back."""

    def layer(x: Array, weights: Tree) -> tuple[Array, None]:
        weights = bfloat16(weights)
        y = rms_norm(x, weights["n1"])
        x = x + attention(y, weights, tokens >= 0)
        y = rms_norm(x, weights["n2"])
        y = jax.nn.silu(y @ weights["gate"]) * (y @ weights["up"])
        return x + y @ weights["down"], None

    if is_kept:
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        layer = jax.checkpoint(layer, policy=policy, prevent_cse=False)
    x = bfloat16(params["emb"])[jnp.maximum(tokens, 0)]
    x, _ = lax.scan(layer, x, params["layers"])
    return rms_norm(x, bfloat16(params["norm"]))


def log_chances(params: Tree, tokens: Array, is_kept: bool = True) -> Array:
    """Of each token but the first, the log of its chance [B, S]; 0 for the last place.

    Scores of all words are there for a chunk at a time only.
    """
    x = hidden(params, tokens, is_kept)
    emb = bfloat16(params["emb"])
    batch, length, width = x.shape
    after = jnp.pad(jnp.maximum(tokens[:, 1:], 0), ((0, 0), (0, 1)))

    @jax.checkpoint
    def chosen(chunk: tuple[Array, Array]) -> Array:
        x, labels = chunk
        scores = (x @ emb.T).astype(jnp.float32)
        right = jnp.take_along_axis(scores, labels[..., None], axis=-1)[..., 0]
        return right - jax.nn.logsumexp(scores, axis=-1)

    x = x.reshape(batch, -1, CHUNK, width).swapaxes(0, 1)
    after = after.reshape(batch, -1, CHUNK).swapaxes(0, 1)
    logs = lax.map(chosen, (x, after)).swapaxes(0, 1).reshape(batch, length)
    return jnp.where(jnp.arange(length) < length - 1, logs, 0.0)


def grpo_loss(params: Tree, reference: Tree, part: Tree) -> tuple[Array, Tree]:
    """Sums over answers' tokens, where mask [B, S] is 1, of one microbatch.

    tokens [B, S], -1 where there are none; old [B, S]: what log-chances were when the
    answers were drawn; advantage [B].
    """
    logs = log_chances(params, part["tokens"])
    before = lax.stop_gradient(log_chances(reference, part["tokens"], False))
    ratio = jnp.exp(logs - part["old"])
    advantage = part["advantage"][:, None]
    clipped = jnp.clip(ratio, 1 - LOW, 1 + HIGH)
    gain = jnp.minimum(ratio * advantage, clipped * advantage)
    apart = jnp.exp(before - logs) - (before - logs) - 1
    mask = part["mask"]
    loss = jnp.sum((DIVERGENCE * apart - gain) * mask)
    is_clipped = (ratio * advantage > clipped * advantage).astype(jnp.float32)
    told = {"apart": jnp.sum(apart * mask), "clipped": jnp.sum(is_clipped * mask)}
    return loss, {"loss": loss, **told}


# -- Adam whose moments are bytes --------------------------------------------------

SHARED = 128
SMALL = 4096  # parameters of fewer elements keep moments of four bytes
RATE, BETA1, BETA2 = 1e-6, 0.9, 0.99


def is_packed(param: Any) -> bool:
    """Whether moments of a parameter are bytes."""
    return param.size >= SMALL and param.shape[-1] % SHARED == 0


def packed(x: Array) -> Tree:
    """`x` [..., D] in bytes, and of each U of them a scale [..., D / U]."""
    blocks = x.reshape(*x.shape[:-1], -1, SHARED)
    scale = jnp.max(jnp.abs(blocks), axis=-1, keepdims=True) / 127
    bytes_ = jnp.round(blocks / jnp.maximum(scale, 1e-30)).astype(jnp.int8)
    return {"bytes": bytes_.reshape(x.shape), "scale": scale[..., 0]}


def unpacked(kept: Any) -> Array:
    """What was packed; what never was, as it is."""
    if not isinstance(kept, dict):
        return kept
    dims = kept["bytes"].shape
    blocks = kept["bytes"].reshape(*dims[:-1], -1, SHARED).astype(jnp.float32)
    return (blocks * kept["scale"][..., None]).reshape(dims)


def adam_update(param: Array, g: Array, kept: Tree, step: Array) -> tuple[Array, Tree]:
    """A parameter and its moments; of squares the roots are kept: bytes reach not far."""
    mean = BETA1 * unpacked(kept["mean"]) + (1 - BETA1) * g
    root = unpacked(kept["root"])
    root = jnp.sqrt(BETA2 * root * root + (1 - BETA2) * g * g)
    move = mean / (1 - BETA1**step)
    move = move / (root * lax.rsqrt(1 - BETA2**step) + 1e-8)
    new = packed if is_packed(param) else (lambda x: x)
    return param - RATE * move, {"mean": new(mean), "root": new(root)}


# -- the step ----------------------------------------------------------------------


def parts_of(batch: Tree) -> Tree:
    """Microbatches of a batch, each answer with how it fared within its group."""
    rewards = batch["rewards"].reshape(-1, GROUP)
    mean, spread = rewards.mean(1, keepdims=True), rewards.std(1, keepdims=True)
    advantage = ((rewards - mean) / (spread + 1e-4)).reshape(-1)
    whole_batch = {
        "tokens": batch["tokens"], "mask": batch["mask"], "old": batch["old"],
        "advantage": advantage,
    }  # fmt: skip
    return jax.tree.map(
        lambda x: x.reshape(-1, MICROBATCHES, *x.shape[1:]).swapaxes(0, 1), whole_batch
    )


def grpo_step(state: Tree, batch: Tree) -> tuple[Tree, Tree]:
    """New state and what is told of the step; the reference stays as it is."""
    params = state["policy"]
    grad_fn = jax.value_and_grad(grpo_loss, has_aux=True)

    def accumulate(carry: Any, part: Tree) -> tuple[Any, None]:
        (_, told), gradients = grad_fn(params, state["reference"], part)
        return jax.tree.map(jnp.add, carry, (told, gradients)), None

    told = dict.fromkeys(("loss", "apart", "clipped"), jnp.zeros(()))
    start = told, jax.tree.map(jnp.zeros_like, params)
    (told, gradients), _ = lax.scan(accumulate, start, parts_of(batch))
    count = jnp.maximum(jnp.sum(batch["mask"]), 1)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients))) / count
    scale = jnp.minimum(1.0, 1.0 / (norm + 1e-6)) / count
    step = state["step"] + 1
    leaves, tree = jax.tree.flatten(params)
    new = [
        adam_update(param, g * scale, kept, step.astype(jnp.float32))
        for param, g, kept in zip(
            leaves,
            tree.flatten_up_to(gradients),
            tree.flatten_up_to(state["kept"]),
            strict=True,
        )
    ]
    policy, kept = (tree.unflatten(part) for part in zip(*new, strict=True))
    told = {name: value / count for name, value in told.items()}
    state = {**state, "policy": policy, "kept": kept, "step": step}
    return state, {**told, "norm": norm}


def grpo(
    batch: int = 128, length: int = 1024, width: int = 896, vocab: int = 151_936
) -> Target:
    """Shao et al., 2024, on Qwen 2.5 of half a billion (2024), all its 24 layers."""
    layers, inner, keys = 24, 4864, 2 * HEAD
    stacked = {
        "n1": (width,), "n2": (width,), "q": (width, width), "q_bias": (width,),
        "k": (width, keys), "k_bias": (keys,), "v": (width, keys), "v_bias": (keys,),
        "o": (width, width), "gate": (width, inner), "up": (width, inner),
        "down": (inner, width),
    }  # fmt: skip
    params = {
        "emb": shape(vocab, width), "norm": shape(width),
        "layers": {name: shape(layers, *dims) for name, dims in stacked.items()},
    }  # fmt: skip

    def moments(param: Any) -> Tree:
        kept = jax.eval_shape(packed, param) if is_packed(param) else param
        return {"mean": kept, "root": kept}

    reference = jax.tree.map(lambda x: half(*x.shape), params)
    state = {
        "policy": params, "reference": reference,
        "kept": jax.tree.map(moments, params), "step": whole(),
    }  # fmt: skip
    answers = {
        "tokens": whole(batch, length), "mask": shape(batch, length),
        "old": shape(batch, length), "rewards": shape(batch),
    }  # fmt: skip
    return grpo_step, (state, answers)
