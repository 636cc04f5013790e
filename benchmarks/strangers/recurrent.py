"""Two models with a state: a selective state space, and an agent with an LSTM.

Letters: B batch, S sequence, D features, I inner features, N features of a state,
C a chunk of the sequence, R rank of the step sizes, V vocab, T time, A actions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.strangers.language import clipped, cross_entropy, rms_norm
from benchmarks.strangers.step import (
    Target,
    Tree,
    adam,
    bfloat16,
    shape,
    training,
    whole,
)

# -- Mamba: a scan of chunks, each scanned as a tree -------------------------------

CHUNK = 128
STATE = 16
TAPS = 4


def combined(left: Any, right: Any) -> Any:
    """Decay and drive of two spans of time, one after the other."""
    return left[0] * right[0], left[1] * right[0] + right[1]


def selective_scan(x: Array, step: Array, rates: Array, b: Array, c: Array) -> Array:
    """What states [B, I, N] say of x [B, S, I] at each time: [B, S, I].

    step [B, S, I]: sizes of steps; rates [I, N]; b, c [B, S, N]: ways in and out.
    """
    chunk = min(CHUNK, x.shape[1])

    def cut(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(x.shape[0], -1, chunk, x.shape[2]), 1, 0)

    @jax.checkpoint
    def run_chunk(state: Array, parts: Any) -> tuple[Array, Array]:
        x, step, b, c = parts
        decay = jnp.exp(step[..., None] * rates)
        drive = (step * x)[..., None] * b[:, :, None]
        decay, states = lax.associative_scan(combined, (decay, drive), axis=1)
        states = states + decay * state[:, None]
        return states[:, -1], jnp.einsum("bcin,bcn->bci", states, c)

    start = jnp.zeros((x.shape[0], *rates.shape))
    _, y = lax.scan(run_chunk, start, (cut(x), cut(step), cut(b), cut(c)))
    return jnp.moveaxis(y, 0, 1).reshape(x.shape)


def mamba_layer(x: Array, layer: Tree) -> Array:
    """[B, S, D] of x [B, S, D].

    inp: to the inner features and their gate; dw: the last steps of each feature alone;
    sel: to R, b and c; dt: from R to the sizes of steps; a: rates; skip: past the scan.
    """
    weights = bfloat16(layer)
    y, gate = jnp.split(rms_norm(x, layer["n"]) @ weights["inp"], 2, -1)
    y = lax.conv_general_dilated(
        y, weights["dw"], (1,), [(TAPS - 1, 0)], feature_group_count=y.shape[-1],
        dimension_numbers=("NWC", "WIO", "NWC"),
    )  # fmt: skip
    y = jax.nn.silu(y + weights["dwb"])
    rank = layer["dt"].shape[0]
    low, b, c = jnp.split(y @ weights["sel"], [rank, rank + STATE], -1)
    step = low @ weights["dt"]
    y, step, b, c = (part.astype(jnp.float32) for part in (y, step, b, c))
    step = jax.nn.softplus(step + layer["dtb"])
    scanned = selective_scan(y, step, -jnp.exp(layer["a"]), b, c)
    y = bfloat16(scanned + y * layer["skip"]) * jax.nn.silu(gate)
    return x + y @ weights["out"]


def mamba_loss(params: Tree, batch: Tree) -> Array:
    """Mean cross-entropy of the tokens y [B, S] after x [B, S]; the output is tied."""
    x = bfloat16(params["emb"][batch["x"]])
    for layer in params["layers"]:
        x = mamba_layer(x, layer)
    scores = rms_norm(x, params["n"]) @ bfloat16(params["emb"]).T
    return jnp.mean(cross_entropy(scores, batch["y"]))


def mamba(
    batch: int = 32, length: int = 2048, width: int = 1024, vocab: int = 32_000
) -> Target:
    """Gu and Dao, 2023: six layers, chunks of time made again on the way back."""
    inner, rank = 2 * width, width // 16
    layer = {
        "n": shape(width), "inp": shape(width, 2 * inner),
        "dw": shape(TAPS, 1, inner), "dwb": shape(inner),
        "sel": shape(inner, rank + 2 * STATE),
        "dt": shape(rank, inner), "dtb": shape(inner),
        "a": shape(inner, STATE), "skip": shape(inner), "out": shape(inner, width),
    }  # fmt: skip
    params = {"emb": shape(vocab, width), "layers": [layer] * 6, "n": shape(width)}
    tokens = whole(batch, length)
    return training(mamba_loss, params, {"x": tokens, "y": tokens})


# -- PPO: four epochs over what many games have shown ------------------------------

EPOCHS, MINIBATCHES = 4, 4
DISCOUNT, TRACE = 0.99, 0.95
CLIP = 0.2
KERNELS = ((8, 4, 32), (4, 2, 64), (3, 1, 64))  # side, stride, features
conv = partial(
    lax.conv_general_dilated,
    padding="VALID",
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
)


def torso(params: Tree, frames: Array) -> Array:
    """Features [B, D] of frames [B, side, side, 4] of bytes; Mnih et al., 2015."""
    x = frames.astype(jnp.float32) / 255
    for weights, (_, stride, _) in zip(params["conv"], KERNELS, strict=True):
        x = conv(x, weights["w"], window_strides=(stride, stride)) + weights["b"]
        x = jax.nn.relu(x)
    x = x.reshape(x.shape[0], -1)
    return jax.nn.relu(x @ params["dense"] + params["denseb"])


def policy(params: Tree, games: Tree) -> tuple[Array, Array]:
    """Log-chances [B, T, A] of actions and values [B, T], of frames and their state.

    first [B, T]: where a game begins and the LSTM forgets.
    """
    frames = games["frames"]
    batch, time = frames.shape[:2]
    x = torso(params, frames.reshape(-1, *frames.shape[2:])).reshape(batch, time, -1)

    def cell(carry: Any, inputs: Any) -> tuple[Any, Array]:
        x, first = inputs
        hidden, memory = (s * (1 - first)[:, None] for s in carry)
        gates = x @ params["w"] + hidden @ params["u"] + params["b"]
        enter, forget, new, leave = jnp.split(gates, 4, -1)
        memory = jax.nn.sigmoid(forget + 1) * memory
        memory = memory + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(memory)
        return (hidden, memory), hidden

    start = games["hidden"], games["memory"]
    inputs = jnp.swapaxes(x, 0, 1), games["first"].T
    _, x = lax.scan(cell, start, inputs)
    x = jnp.swapaxes(x, 0, 1)
    values = (x @ params["critic"])[..., 0]
    return jax.nn.log_softmax(x @ params["actor"]), values


def advantages(games: Tree) -> Array:
    """[B, T], of rewards, values and first; Schulman et al., 2016.

    last [B]: the value after the last step; over [B]: whether the game ended there.
    """
    ends = jnp.concatenate([games["first"][:, 1:], games["over"][:, None]], 1)
    after = jnp.concatenate([games["values"][:, 1:], games["last"][:, None]], 1)
    goes_on = 1 - ends
    errors = games["rewards"] + DISCOUNT * after * goes_on - games["values"]

    def back(later: Array, inputs: Any) -> tuple[Array, Array]:
        error, goes_on = inputs
        later = error + DISCOUNT * TRACE * goes_on * later
        return later, later

    start = jnp.zeros_like(games["last"])
    _, summed = lax.scan(back, start, (errors.T, goes_on.T), reverse=True)
    return summed.T


def ppo_loss(params: Tree, games: Tree) -> Array:
    """Clipped loss of actions [B, T], squared error of values, minus some entropy."""
    log_chances, values = policy(params, games)
    actions = games["actions"][..., None]
    chosen = jnp.take_along_axis(log_chances, actions, -1)[..., 0]
    gain = games["gain"]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    ratio = jnp.exp(chosen - games["chances"])
    limited = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    actor = -jnp.mean(jnp.minimum(ratio * gain, limited * gain))
    critic = jnp.mean(jnp.square(values - (games["gain"] + games["values"])))
    entropy = -jnp.mean(jnp.sum(jnp.exp(log_chances) * log_chances, -1))
    return actor + 0.5 * critic - 0.01 * entropy


def ppo_step(state: Any, games: Tree) -> Any:
    """New state and the mean loss, after four epochs of four minibatches of games."""
    games = {**games, "gain": advantages(games)}
    count = games["last"].shape[0]

    def update(state: Any, chosen: Array) -> tuple[Any, Array]:
        params, optimizer = state
        some = jax.tree.map(lambda x: x[chosen], games)
        loss, gradients = jax.value_and_grad(ppo_loss)(params, some)
        return adam(params, clipped(gradients, 0.5), optimizer), loss

    def epoch(state: Any, key: Array) -> tuple[Any, Array]:
        order = jax.random.permutation(key, count)
        return lax.scan(update, state, order.reshape(MINIBATCHES, -1))

    key = jax.random.fold_in(jax.random.key(0), state[1][2])
    state, losses = lax.scan(epoch, state, jax.random.split(key, EPOCHS))
    return state, jnp.mean(losses)


def ppo(batch: int = 512, time: int = 128, side: int = 84, width: int = 512) -> Target:
    """Schulman et al., 2017: frames of 512 games, 18 actions; all in float32."""
    left, before, kernels = side, 4, []
    for size, stride, after in KERNELS:
        kernels.append({"w": shape(size, size, before, after), "b": shape(after)})
        left, before = (left - size) // stride + 1, after
    params = {
        "conv": kernels,
        "dense": shape(left * left * before, width), "denseb": shape(width),
        "w": shape(width, 4 * width), "u": shape(width, 4 * width),
        "b": shape(4 * width), "actor": shape(width, 18), "critic": shape(width, 1),
    }  # fmt: skip
    each = shape(batch, time)
    games = {
        "frames": jax.ShapeDtypeStruct((batch, time, side, side, 4), jnp.uint8),
        "hidden": shape(batch, width), "memory": shape(batch, width),
        "first": each, "rewards": each, "values": each, "chances": each,
        "actions": whole(batch, time), "last": shape(batch), "over": shape(batch),
    }  # fmt: skip
    return ppo_step, ((params, (params, params, whole())), games)
