"""A language model whose attention is linear, its memory gated; trained by Shampoo.

Letters: B batch, S sequence, C positions of a chunk, D features, N heads, H features of
a head's keys, E of its values, V vocab, L layers; M blocks of a matrix, of U by U.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.step import (
    Target,
    Tree,
    bfloat16,
    shape,
    standardized,
    surprise,
    whole,
)

HEADS = 4
CHUNK = 64
TEMPERATURE = 16.0  # how much slower than its gate a memory fades

# -- the model ---------------------------------------------------------------------


def memory(q: Array, k: Array, v: Array, fading: Array) -> Array:
    """[B, S, N, E] of q, k [B, S, N, H], v [B, S, N, E]; fading: logs [B, S, N, H].

    Within a chunk all positions at once, from chunk to chunk what [B, N, H, E] is kept.
    """
    batch, length = q.shape[:2]

    def chunks(x: Array) -> Array:
        x = x.reshape(batch, length // CHUNK, CHUNK, *x.shape[2:])
        return x.transpose(1, 0, 3, 2, 4)

    is_past = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))

    @jax.checkpoint
    def read(kept: Array, chunk: Any) -> tuple[Array, Array]:
        q, k, v, fading = chunk
        faded = jnp.cumsum(fading, axis=2)
        last = faded[:, :, -1:]
        q = q * jnp.exp(faded)
        scores = jnp.einsum("bnqh,bnkh->bnqk", q, k * jnp.exp(-faded))
        mixed = jnp.einsum("bnqk,bnke->bnqe", jnp.where(is_past, scores, 0), v)
        mixed = mixed + jnp.einsum("bnqh,bnhe->bnqe", q, kept)
        kept = kept * jnp.exp(last).swapaxes(2, 3)
        kept = kept + jnp.einsum("bnkh,bnke->bnhe", k * jnp.exp(last - faded), v)
        return kept, bfloat16(mixed)

    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    start = jnp.zeros((batch, HEADS, q.shape[-1], v.shape[-1]), jnp.float32)
    _, mixed = lax.scan(read, start, tuple(map(chunks, (q, k, v, fading))))
    return mixed.transpose(1, 0, 3, 2, 4).reshape(batch, length, HEADS, -1)


def gla_layer(x: Array, layer: Tree) -> tuple[Array, None]:
    """[B, S, D] of x [B, S, D]; fade: by way of a low rank, in float32."""
    weights = bfloat16(layer)
    split = (*x.shape[:2], HEADS, -1)
    y = bfloat16(standardized(x) * layer["n1"])
    q, k = jnp.split(y @ weights["qk"], 2, axis=-1)
    v = (y @ weights["v"]).reshape(split)
    low = (y @ weights["fade_down"]).astype(jnp.float32)
    fading = jax.nn.log_sigmoid(low @ layer["fade_up"] + layer["fade"]) / TEMPERATURE
    q = q.reshape(split) * (q.shape[-1] // HEADS) ** -0.5
    mixed = memory(q, k.reshape(split), v, fading.reshape(split))
    mixed = bfloat16(standardized(mixed)).reshape(x.shape)
    mixed = mixed * jax.nn.silu(y @ weights["gate"])
    x = x + mixed @ weights["out"]
    y = bfloat16(standardized(x) * layer["n2"])
    gate, up = jnp.split(y @ weights["up"], 2, axis=-1)
    return x + (jax.nn.silu(gate) * up) @ weights["down"], None


def gla_loss(params: Tree, tokens: Array) -> Array:
    """Mean cross-entropy of each of tokens [B, S + 1] but the first; the output tied."""
    emb = bfloat16(params["emb"])
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    layer = jax.checkpoint(gla_layer, policy=policy, prevent_cse=False)
    x, _ = lax.scan(layer, emb[tokens[:, :-1]], params["layers"])
    scores = bfloat16(standardized(x) * params["norm"]) @ emb.T
    return surprise(jax.nn.log_softmax(scores.astype(jnp.float32)), tokens[:, 1:])


# -- Shampoo: of each block of a matrix, what its rows and its columns do ----------

BLOCK = 1024
RATE, DECAY = 1e-3, 0.01
MOMENTUM, STATISTICS, GRAFT = 0.9, 0.99, 0.999
EVERY = 100
RIDGE = 1e-6
ROUNDS, NEAR = 20, 1e-6


def is_blocked(param: Any) -> bool:
    """Whether a stack of matrices [L, I, O] falls into whole blocks."""
    dims = param.shape
    return len(dims) == 3 and dims[1] % BLOCK == 0 and dims[2] % BLOCK == 0


def blocks_of(x: Array) -> Array:
    """Blocks [M, U, U] of a stack of matrices x [L, I, O]."""
    layers, rows, columns = x.shape
    x = x.reshape(layers, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    return x.swapaxes(2, 3).reshape(-1, BLOCK, BLOCK)


def matrices_of(blocks: Array, dims: tuple[int, ...]) -> Array:
    """The stack [L, I, O] of matrices of its blocks [M, U, U]."""
    layers, rows, columns = dims
    x = blocks.reshape(layers, rows // BLOCK, columns // BLOCK, BLOCK, BLOCK)
    return x.swapaxes(2, 3).reshape(dims)


def product(a: Array, b: Array) -> Array:
    """Of two matrices, with all bits that there are."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def inverse_root(matrix: Array) -> Array:
    """The -1/4th power of a matrix [U, U], by Newton's way for both it and its root."""
    one = jnp.eye(matrix.shape[0])
    matrix = matrix + RIDGE * jnp.max(jnp.diagonal(matrix)) * one + 1e-30 * one
    scale = (1 + 4) / (2 * jnp.linalg.norm(matrix))

    def goes_on(carry: Any) -> Array:
        i, error, _, _ = carry
        return (i < ROUNDS) & (error > NEAR)

    def refine(carry: Any) -> Any:
        i, _, power, root = carry
        factor = 1.25 * one - 0.25 * power
        square = product(factor, factor)
        power = product(product(square, square), power)
        error = jnp.max(jnp.abs(power - one))
        return i + 1, error, power, product(root, factor)

    start = 0, jnp.asarray(jnp.inf), matrix * scale, one * scale**0.25
    return lax.while_loop(goes_on, refine, start)[3]


def kept_of(param: Any) -> Tree:
    """What the optimizer keeps of a parameter."""
    dims = shape(*param.shape)
    kept = {"momentum": dims, "square": dims}
    if not is_blocked(param):
        return kept
    layers, rows, columns = param.shape
    blocks = shape(layers * (rows // BLOCK) * (columns // BLOCK), BLOCK, BLOCK)
    sides = {"left": blocks, "right": blocks}
    return {**kept, "statistics": sides, "roots": sides}


def shampoo_update(param: Array, g: Array, kept: Tree, step: Array) -> Any:
    """A parameter and what is kept of it; Gupta et al., 2018, as long as RMSProp's."""
    square = GRAFT * kept["square"] + (1 - GRAFT) * g * g
    update = grafted = g * lax.rsqrt(square + 1e-16)
    more = {}
    if "roots" in kept:
        blocks, old = blocks_of(g), kept["statistics"]
        left = jnp.einsum("mij,mkj->mik", blocks, blocks)
        right = jnp.einsum("mij,mik->mjk", blocks, blocks)
        sides = {"left": left, "right": right}
        statistics = jax.tree.map(
            lambda old, new: STATISTICS * old + (1 - STATISTICS) * new, old, sides
        )
        roots = lax.cond(
            step % EVERY == 1,
            lambda: jax.tree.map(jax.vmap(inverse_root), statistics),
            lambda: kept["roots"],
        )
        update = roots["left"] @ blocks @ roots["right"]
        update = matrices_of(update, g.shape)
        length = jnp.linalg.norm(grafted, axis=(1, 2), keepdims=True)
        own = jnp.linalg.norm(update, axis=(1, 2), keepdims=True)
        update = update * length / (own + 1e-16)
        more = {"statistics": statistics, "roots": roots}
    momentum = MOMENTUM * kept["momentum"] + update + DECAY * param
    kept = {"momentum": momentum, "square": square, **more}
    return param - RATE * (update + MOMENTUM * momentum), kept


def gla_step(state: Tree, tokens: Array) -> tuple[Tree, Array]:
    """New state and the loss of tokens [B, S + 1]."""
    step = state["step"] + 1
    loss, gradients = jax.value_and_grad(gla_loss)(state["params"], tokens)
    params, tree = jax.tree.flatten(state["params"])
    kept = tree.flatten_up_to(state["kept"])
    new = [
        shampoo_update(*inputs, step)
        for inputs in zip(params, tree.flatten_up_to(gradients), kept, strict=True)
    ]
    params, kept = (tree.unflatten(part) for part in zip(*new, strict=True))
    return {"params": params, "kept": kept, "step": step}, loss


def gla(
    batch: int = 32, length: int = 2048, width: int = 1024, vocab: int = 32_000
) -> Target:
    """Yang et al., 2024: eight layers, keys half as wide as values."""
    layers, keys, inner, low = 8, width // 2, 3 * width, 16
    square = shape(layers, width, width)
    stacked = {
        "n1": shape(layers, width), "n2": shape(layers, width),
        "qk": shape(layers, width, 2 * keys), "v": square, "gate": square, "out": square,
        "fade_down": shape(layers, width, low), "fade_up": shape(layers, low, keys),
        "fade": shape(layers, keys), "up": shape(layers, width, 2 * inner),
        "down": shape(layers, inner, width),
    }  # fmt: skip
    params = {"emb": shape(vocab, width), "norm": shape(width), "layers": stacked}
    kept = jax.tree.map(kept_of, params)
    state = {"params": params, "kept": kept, "step": whole()}
    return gla_step, (state, whole(batch, length + 1))
