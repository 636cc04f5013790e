"""A recognizer of speech that says a character or nothing at each frame.

Letters: B batch, T frames, S positions, D features, N heads, H features of a head,
U characters of a text, V characters there are, L layers.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.language import adamw, clipped
from benchmarks.strangers.step import Target, Tree, bfloat16, shape, whole

HEADS = 12
BLANK = 0
IMPOSSIBLE = -1e5
MASKS = ((0, 2, 100), (1, 2, 27))  # of time and of mel: how many, how wide at most

# -- frames, some of them hidden ---------------------------------------------------


def hide_spans(x: Array, key: Array) -> Array:
    """Frames x [T, mel] of one recording, spans of both set to 0; Park et al., 2019."""
    for dim, count, widest in MASKS:
        places = jnp.arange(x.shape[dim])
        for _ in range(count):
            key, width_key, start_key = jax.random.split(key, 3)
            width = jax.random.randint(width_key, (), 0, widest)
            start = jax.random.randint(start_key, (), 0, x.shape[dim] - widest)
            is_hidden = (places >= start) & (places < start + width)
            x = jnp.where(jnp.expand_dims(is_hidden, 1 - dim), 0.0, x)
    return x


# -- the encoder -------------------------------------------------------------------


def norm(x: Array, weights: Tree) -> Array:
    """`x` [B, S, D] standardized in float32, scaled and shifted, in bfloat16."""
    y = jax.nn.standardize(x.astype(jnp.float32), epsilon=1e-5)
    return (y * weights["scale"] + weights["bias"]).astype(jnp.bfloat16)


def dense(x: Array, weights: Tree) -> Array:
    """`x` [B, S, D] times a kernel, shifted, in bfloat16."""
    kernel, bias = bfloat16((weights["kernel"], weights["bias"]))
    return jnp.dot(x, kernel) + bias


def conv(x: Array, weights: Tree, stride: int) -> Array:
    """[B, T / stride, D] of x [B, T, D']: a kernel over three frames."""
    kernel, bias = bfloat16((weights["kernel"], weights["bias"]))
    y = lax.conv_general_dilated(
        x, kernel, (stride,), [(1, 1)], dimension_numbers=("NTC", "TIO", "NTC")
    )
    return jax.nn.gelu(y + bias)


def self_attention(x: Array, weights: Tree, is_sound: Array) -> Array:
    """[B, S, D] of x [B, S, D], among positions that is_sound [B, S] tells."""
    batch, length, width = x.shape
    split = (batch, length, HEADS, width // HEADS)
    q = dense(x, weights["query"]).reshape(split)
    k = dense(x, weights["key"]).reshape(split)
    v = dense(x, weights["value"]).reshape(split)
    q, k, v = (jnp.swapaxes(y, 1, 2) for y in (q, k, v))
    scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(width // HEADS)
    seen = is_sound[:, None, None, :]
    shares = jax.nn.softmax(scores.astype(jnp.float32), axis=-1, where=seen)
    mixed = jnp.swapaxes(bfloat16(shares) @ v, 1, 2)
    return dense(mixed.reshape(x.shape), weights["out"])


def sinusoids(length: int, width: int) -> Array:
    """Positions [S, D]: sines, then cosines."""
    rates = jnp.exp(-math.log(10_000) / (width // 2 - 1) * jnp.arange(width // 2))
    angles = jnp.arange(length)[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def encoded(params: Tree, frames: Array, num_frames: Array) -> Array:
    """[B, S, D] of frames [B, 2 S, mel], of which num_frames [B] are sound."""
    x = conv(bfloat16(frames), params["conv1"], 1)
    x = conv(x, params["conv2"], 2)
    x = x + bfloat16(sinusoids(x.shape[1], x.shape[2]))
    is_sound = jnp.arange(x.shape[1]) < (num_frames[:, None] + 1) // 2

    def layer(x: Array, weights: Tree) -> tuple[Array, None]:
        y = norm(x, weights["norm1"])
        x = x + self_attention(y, weights["attention"], is_sound)
        y = jax.nn.gelu(dense(norm(x, weights["norm2"]), weights["up"]))
        return x + dense(y, weights["down"]), None

    x, _ = lax.scan(jax.checkpoint(layer, prevent_cse=False), x, params["layers"])
    return norm(x, params["norm"])


# -- connectionist temporal classification -----------------------------------------


def ctc(log_chances: Array, text: Array, length: Array, num_chars: Array) -> Array:
    """-log of the chance of one text [U], over all ways to spell it.

    log_chances [S, V], of which `length` positions count, and `num_chars` of the text.
    Graves et al., 2006: the text with a blank at each place between.
    """
    spelled = jnp.full(2 * text.shape[0] + 1, BLANK, text.dtype).at[1::2].set(text)
    before = jnp.pad(spelled, (2, 0), constant_values=BLANK)[:-2]
    can_skip = (spelled != BLANK) & (spelled != before)
    emitted = log_chances[:, spelled]

    def advance(alpha: Array, inputs: tuple[Array, Array]) -> tuple[Array, None]:
        emitted, position = inputs
        one = jnp.pad(alpha, (1, 0), constant_values=IMPOSSIBLE)[:-1]
        two = jnp.pad(alpha, (2, 0), constant_values=IMPOSSIBLE)[:-2]
        two = jnp.where(can_skip, two, IMPOSSIBLE)
        reached = jnp.logaddexp(jnp.logaddexp(alpha, one), two) + emitted
        return jnp.where(position < length, reached, alpha), None

    start = jnp.full(spelled.shape, IMPOSSIBLE).at[:2].set(emitted[0, :2])
    positions = jnp.arange(1, emitted.shape[0])
    alpha, _ = lax.scan(advance, start, (emitted[1:], positions))
    return -jnp.logaddexp(alpha[2 * num_chars], alpha[2 * num_chars - 1])


def ctc_loss(params: Tree, batch: Tree, key: Array) -> Array:
    """Mean over recordings of the surprise at a character of texts [B, U].

    frames [B, T, mel]; num_frames, num_chars [B]: how much of both there is.
    """
    frames, num_frames = batch["frames"], batch["num_frames"]
    keys = jax.random.split(key, frames.shape[0])
    frames = jax.vmap(hide_spans)(frames, keys)
    x = encoded(params, frames, num_frames)
    log_chances = jax.nn.log_softmax(dense(x, params["head"]).astype(jnp.float32))
    lengths, num_chars = (num_frames + 1) // 2, batch["num_chars"]
    losses = jax.vmap(ctc)(log_chances, batch["text"], lengths, num_chars)
    return jnp.mean(losses / jnp.maximum(num_chars, 1))


def speech_step(state: Tree, batch: Tree) -> tuple[Tree, Array]:
    """New state and the loss."""
    key = jax.random.fold_in(jax.random.PRNGKey(0), state["optimizer"]["count"])
    loss, gradients = jax.value_and_grad(ctc_loss)(state["params"], batch, key)
    gradients = clipped(gradients, 5.0)
    params, optimizer = adamw(state["params"], gradients, state["optimizer"])
    return {"params": params, "optimizer": optimizer}, loss


def whisper(
    batch: int = 256, frames: int = 1024, mel: int = 80, width: int = 768
) -> Target:
    """Radford et al., 2023, the small encoder, halved; layers made again backward."""
    layers, vocab, chars = 6, 1024, 160

    def kernel(*dims: int) -> Tree:
        return {"kernel": shape(*dims), "bias": shape(*dims[:-2], dims[-1])}

    def scales(*dims: int) -> Tree:
        return {"scale": shape(*dims), "bias": shape(*dims)}

    square = kernel(layers, width, width)
    stacked = {
        "attention": {"query": square, "key": square, "value": square, "out": square},
        "norm1": scales(layers, width), "norm2": scales(layers, width),
        "up": kernel(layers, width, 4 * width),
        "down": kernel(layers, 4 * width, width),
    }  # fmt: skip
    stem = {
        "conv1": {"kernel": shape(3, mel, width), "bias": shape(width)},
        "conv2": {"kernel": shape(3, width, width), "bias": shape(width)},
    }
    params = {
        **stem, "layers": stacked, "norm": scales(width), "head": kernel(width, vocab),
    }  # fmt: skip
    optimizer = {"mu": params, "nu": params, "count": whole()}
    recordings = {
        "frames": shape(batch, frames, mel), "num_frames": whole(batch),
        "text": whole(batch, chars), "num_chars": whole(batch),
    }  # fmt: skip
    return speech_step, ({"params": params, "optimizer": optimizer}, recordings)
