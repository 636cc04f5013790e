"""A vocoder: sound made of a spectrogram, and judges who hear whether it was made.

All in float32. Letters: B batch, T frames, S samples, D features, K the width of a
kernel, P a period, F frequencies.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from benchmarks.strangers.step import Target, Tree, shape

RISES = (8, 8, 2, 2)
KERNELS, DILATIONS = (3, 7, 11), (1, 3, 5)
PERIODS = (2, 3, 5, 7, 11)
SCALES = 3
FRAME, HOP, MELS, RATE = 1024, 256, 80, 22_050
SCALE_LAYERS = (  # kernel, stride, groups, features
    (15, 1, 1, 128), (41, 2, 4, 128), (41, 2, 16, 256), (41, 4, 16, 512),
    (41, 4, 16, 1024), (41, 1, 16, 1024), (5, 1, 1, 1024),
)  # fmt: skip
PERIOD_LAYERS = (32, 128, 512, 1024, 1024)
RELATED, SPECTRAL = 2.0, 45.0
ALONG = ("NWC", "WIO", "NWC")


def kernel_of(weights: Tree) -> Array:
    """A kernel [K, D, D'] by its directions and lengths; Salimans and Kingma, 2016."""
    v = weights["v"]
    length = jnp.sqrt(jnp.sum(jnp.square(v), axis=(0, 1), keepdims=True) + 1e-12)
    return weights["g"] * v / length


def conv(
    x: Array, weights: Tree, stride: int = 1, dilation: int = 1, groups: int = 1
) -> Array:
    """`x` [B, S, D] convolved, the same length but for the stride."""
    kernel = kernel_of(weights)
    side = (kernel.shape[0] - 1) * dilation // 2
    y = lax.conv_general_dilated(
        x, kernel, (stride,), [(side, side)], rhs_dilation=(dilation,),
        dimension_numbers=ALONG, feature_group_count=groups,
    )  # fmt: skip
    return y + weights["b"]


def leaky(x: Array) -> Array:
    """`x`, a tenth of it where it is negative."""
    return jax.nn.leaky_relu(x, 0.1)


# -- who makes it ------------------------------------------------------------------


def residual(x: Array, branch: list[Tree]) -> Array:
    """[B, S, D] of x: kernels of one width, reaching further each time."""
    for weights, dilation in zip(branch, DILATIONS, strict=True):
        y = conv(leaky(x), weights["wide"], dilation=dilation)
        x = x + conv(leaky(y), weights["plain"])
    return x


def generate(params: Tree, mels: Array) -> Array:
    """Sound [B, S] of a spectrogram [B, T, 80]."""
    x = conv(mels, params["first"])
    for weights, rise in zip(params["rises"], RISES, strict=True):
        y = lax.conv_transpose(
            leaky(x), kernel_of(weights["rise"]), (rise,), "SAME",
            dimension_numbers=ALONG,
        )  # fmt: skip
        y = y + weights["rise"]["b"]
        x = sum(residual(y, branch) for branch in weights["branches"]) / len(KERNELS)
    x = conv(jax.nn.leaky_relu(x), params["last"])
    return jnp.tanh(x[..., 0])


# -- who judge it ------------------------------------------------------------------


def judge_period(layers: list[Tree], sound: Array, period: int) -> list[Array]:
    """All features of sound [B, S] folded by a period, a judgment last.

    Places of the period never meet: they are so many sounds more.
    """
    batch, length = sound.shape
    x = jnp.pad(sound, ((0, 0), (0, -length % period)), mode="reflect")
    x = x.reshape(batch, -1, period).swapaxes(1, 2).reshape(batch * period, -1, 1)
    features = []
    for i, weights in enumerate(layers[:-1]):
        x = leaky(conv(x, weights, stride=3 if i + 1 < len(PERIOD_LAYERS) else 1))
        features.append(x)
    return [*features, conv(x, layers[-1])]


def judge_scale(layers: list[Tree], x: Array) -> list[Array]:
    """All features of sound x [B, S, 1], a judgment last."""
    features = []
    for weights, (_, stride, groups, _) in zip(layers[:-1], SCALE_LAYERS, strict=True):
        x = leaky(conv(x, weights, stride=stride, groups=groups))
        features.append(x)
    return [*features, conv(x, layers[-1])]


def judge(params: Tree, sound: Array) -> list[list[Array]]:
    """What all judges make of sound [B, S]."""
    told = [
        judge_period(layers, sound, period)
        for layers, period in zip(params["periods"], PERIODS, strict=True)
    ]
    x = sound[..., None]
    for i, layers in enumerate(params["scales"]):
        if i:
            window, stride = (1, 4, 1), (1, 2, 1)
            x = lax.reduce_window(x, 0.0, lax.add, window, stride, "SAME") / 4
        told.append(judge_scale(layers, x))
    return told


# -- the step ----------------------------------------------------------------------


def mel_filters() -> np.ndarray:
    """How much [F, 80] of each frequency is in each mel."""

    def mel(hertz: Any) -> Any:
        return 2595 * np.log10(1 + hertz / 700)

    hertz = np.linspace(0, RATE / 2, FRAME // 2 + 1)
    edges = 700 * (10 ** (np.linspace(0, mel(8000.0), MELS + 2) / 2595) - 1)
    rise = (hertz[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - hertz[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rise, fall)).astype(np.float32)


def log_mels(sound: Array) -> Array:
    """A spectrogram [B, T, 80] of sound [B, S], in logarithms."""
    side = (FRAME - HOP) // 2
    padded = jnp.pad(sound, ((0, 0), (side, side)), mode="reflect")
    starts = np.arange(sound.shape[1] // HOP) * HOP
    frames = padded[:, starts[:, None] + np.arange(FRAME)] * np.hanning(FRAME)
    spectrum = jnp.fft.rfft(frames.astype(jnp.float32))
    power = jnp.square(spectrum.real) + jnp.square(spectrum.imag)
    mels = jnp.sqrt(power + 1e-9) @ mel_filters()
    return jnp.log(jnp.maximum(mels, 1e-5))


def judges_loss(params: Tree, sound: Array, made: Array) -> Array:
    """Squared errors of what should be 1 of sound and 0 of what was made [B, S]."""
    real, false = judge(params, sound), judge(params, made)
    return sum(
        jnp.mean(jnp.square(1 - a[-1])) + jnp.mean(jnp.square(b[-1]))
        for a, b in zip(real, false, strict=True)
    )


def maker_loss(params: Tree, judges: Tree, batch: Tree) -> tuple[Array, Array]:
    """How far what is made is from deceiving, in features, and in the spectrogram."""
    made = generate(params, batch["mels"])
    real, false = judge(judges, batch["sound"]), judge(judges, made)
    deceived = sum(jnp.mean(jnp.square(1 - b[-1])) for b in false)
    apart = sum(
        jnp.mean(jnp.abs(lax.stop_gradient(x) - y))
        for a, b in zip(real, false, strict=True)
        for x, y in zip(a[:-1], b[:-1], strict=True)
    )
    far = jnp.mean(jnp.abs(log_mels(batch["sound"]) - log_mels(made)))
    return deceived + RELATED * apart + SPECTRAL * far, far


optimizer = optax.adamw(
    optax.exponential_decay(2e-4, 1000, 0.999), b1=0.8, b2=0.99, weight_decay=0.01
)


def vocoder_step(state: Tree, batch: Tree) -> tuple[Tree, Tree]:
    """New state and what is told: first the judges learn, then who makes sound."""
    made = lax.stop_gradient(generate(state["maker"], batch["mels"]))
    loss_fn = jax.value_and_grad(judges_loss)
    judged, gradients = loss_fn(state["judges"], batch["sound"], made)
    updates, judges_kept = optimizer.update(
        gradients, state["judges_kept"], state["judges"]
    )
    judges = optax.apply_updates(state["judges"], updates)
    loss_fn = jax.value_and_grad(maker_loss, has_aux=True)
    (loss, far), gradients = loss_fn(state["maker"], judges, batch)
    updates, maker_kept = optimizer.update(
        gradients, state["maker_kept"], state["maker"]
    )
    maker = optax.apply_updates(state["maker"], updates)
    state = {
        "maker": maker, "judges": judges,
        "maker_kept": maker_kept, "judges_kept": judges_kept,
    }  # fmt: skip
    return state, {"maker": loss, "judges": judged, "far": far}


# -- shapes ------------------------------------------------------------------------


def conv_shapes(width: int, before: int, after: int, groups: int = 1) -> Tree:
    """Parameters of `conv`."""
    kernel = shape(width, before // groups, after)
    return {"v": kernel, "g": shape(after), "b": shape(after)}


def maker_shapes(width: int) -> Tree:
    """Parameters of `generate`, with so many features at first."""
    rises, before = [], width
    for rise in RISES:
        after = before // 2
        branches = []
        for kernel in KERNELS:
            one = conv_shapes(kernel, after, after)
            branches.append([{"wide": one, "plain": one} for _ in DILATIONS])
        up = conv_shapes(2 * rise, before, after)
        rises.append({"rise": up, "branches": branches})
        before = after
    first, last = conv_shapes(7, MELS, width), conv_shapes(7, before, 1)
    return {"first": first, "rises": rises, "last": last}


def judges_shapes() -> Tree:
    """Parameters of `judge`."""
    widths = (1, *PERIOD_LAYERS)
    period = [
        conv_shapes(5, before, after) for before, after in itertools.pairwise(widths)
    ]
    period.append(conv_shapes(3, widths[-1], 1))
    scale, before = [], 1
    for kernel, _, groups, after in SCALE_LAYERS:
        scale.append(conv_shapes(kernel, before, after, groups))
        before = after
    scale.append(conv_shapes(3, before, 1))
    return {"periods": [period] * len(PERIODS), "scales": [scale] * SCALES}


def hifigan(batch: int = 128, samples: int = 8192, width: int = 512) -> Target:
    """Kong et al., 2020, its first version; all judges, AdamW for both sides."""
    maker, judges = maker_shapes(width), judges_shapes()
    state = {
        "maker": maker, "judges": judges,
        "maker_kept": jax.eval_shape(optimizer.init, maker),
        "judges_kept": jax.eval_shape(optimizer.init, judges),
    }  # fmt: skip
    recordings = {
        "mels": shape(batch, samples // HOP, MELS), "sound": shape(batch, samples),
    }  # fmt: skip
    return vocoder_step, (state, recordings)
