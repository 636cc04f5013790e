"""Small models in the styles of linen, nnx, equinox, haiku and plain JAX."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

RNG = np.random.default_rng(7)


def normal(*shape, scale=0.3):
    return (scale * RNG.normal(size=shape)).astype(np.float32)


def of_linen(module, *inputs):
    """(function, arguments) of a linen module, with variables as weights."""
    variables = module.init(jax.random.key(0), *inputs)
    return lambda variables, *xs: module.apply(variables, *xs), (variables, *inputs)


def of_nnx(module, *inputs):
    """(function, arguments) of an nnx module, split into its graph and its state."""
    graph, state = nnx.split(module)
    return (
        lambda params, *xs: nnx.merge(graph, params)(*xs),
        (nnx.to_pure_dict(state), *inputs),
    )


# -- linen -----------------------------------------------------------------------------


class ConvNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(8, (3, 3))(x)))
        x = nn.avg_pool(nn.max_pool(x, (2, 2), (2, 2)), (2, 2), (2, 2))
        return nn.Dense(5)(x.reshape(x.shape[0], -1))


class Encoder(nn.Module):
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(20, 16, dtype=self.dtype)(tokens)
        mask = nn.make_causal_mask(tokens)
        for _ in range(2):
            y = nn.LayerNorm(dtype=self.dtype)(x)
            x = x + nn.MultiHeadDotProductAttention(2, dtype=self.dtype)(y, mask=mask)
            y = nn.gelu(
                nn.Dense(32, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x))
            )
            x = x + nn.Dense(16, dtype=self.dtype)(y)
        return nn.Dense(20, dtype=self.dtype)(x)


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.RNN(nn.GRUCell(8))(x)[:, -1])


class Separable(nn.Module):
    """Depthwise convolutions with squeeze-and-excite and hard swish."""

    @nn.compact
    def __call__(self, x):
        y = nn.hard_swish(nn.Conv(12, (1, 1))(x))
        y = nn.hard_swish(nn.Conv(12, (3, 3), feature_group_count=12)(y))
        y = y * nn.hard_sigmoid(nn.Dense(12)(y.mean((1, 2), keepdims=True)))
        return nn.GroupNorm(4)(y).mean((1, 2))


# -- nnx -------------------------------------------------------------------------------


class NnxMlp(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(6, 16, rngs=rngs), nnx.Linear(16, 3, rngs=rngs)
        self.norm = nnx.RMSNorm(16, rngs=rngs)

    def __call__(self, x):
        return jax.nn.log_softmax(self.down(self.norm(nnx.silu(self.up(x)))))


class Vae(nnx.Module):
    def __init__(self, rngs):
        self.encode = nnx.Linear(8, 6, rngs=rngs)
        self.decode = nnx.ConvTranspose(1, 2, (3, 3), (2, 2), rngs=rngs)

    def __call__(self, x, noise):
        mean, spread = jnp.split(self.encode(x), 2, -1)
        z = mean + jnp.exp(0.5 * jnp.clip(spread, -5, 5)) * noise
        image = self.decode(jnp.pad(z, ((0, 0), (0, 1))).reshape(-1, 2, 2, 1))
        return nnx.sigmoid(image), 0.5 * jnp.sum(
            jnp.exp(spread) + mean**2 - 1 - spread, -1
        )


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.attend = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.dense = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        return x + nnx.gelu(self.dense(x + self.attend(x)), approximate=False)


# -- equinox: modules are pytrees ------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Linear:
    weight: Any
    bias: Any

    def __call__(self, x):
        return self.weight @ x + self.bias


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Mixture:
    """Two of four experts by top k, for one example; `vmap` gives the batch."""

    router: Linear
    experts: Linear

    def __call__(self, x):
        scores, places = lax.top_k(self.router(x), 2)
        chosen = jax.tree.map(lambda a: a[places], self.experts)
        made = jax.vmap(lambda e: e(x))(chosen)
        return jax.nn.softmax(scores) @ jax.nn.tanh(made)


def mixture(model, x):
    return jax.vmap(model)(x)


MIXTURE = (
    Mixture(Linear(normal(4, 6), normal(4)), Linear(normal(4, 5, 6), normal(4, 5))),
    normal(3, 6),
)


def neural_ode(model, y):
    """Runge-Kutta steps of a vector field."""

    def field(y):
        return jnp.tanh(jax.vmap(model)(y))

    def step(y, _):
        k1 = field(y)
        k2 = field(y + 0.05 * k1)
        return y + 0.1 * k2, y.mean()

    return lax.scan(step, y, None, length=6)


ODE = (Linear(normal(4, 4), normal(4)), normal(3, 4))


def graph_network(model, nodes, senders, receivers):
    messages = jax.vmap(model)(jnp.concatenate([nodes[senders], nodes[receivers]], -1))
    mean = jax.ops.segment_sum(messages, receivers, 6)
    most = jax.ops.segment_max(messages, receivers, 6)
    count = jax.ops.segment_sum(jnp.ones(len(receivers)), receivers, 6)
    return mean / jnp.maximum(count, 1)[:, None] + jnp.where(
        jnp.isfinite(most), most, 0
    )


GRAPH = (
    Linear(normal(4, 8), normal(4)), normal(6, 4),
    np.int32([0, 1, 2, 0, 4]), np.int32([1, 2, 0, 0, 2]),
)  # fmt: skip


# -- haiku: nested dicts by module name ------------------------------------------------


def haiku_resnet(params, image):
    def conv(x, name, stride=1):
        dims = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(
            x, params[name]["w"], (stride, stride), "SAME", dimension_numbers=dims
        )

    x = conv(image, "net/~/stem", 2)
    for name in ("net/~/block_0", "net/~/block_1"):
        x = jax.nn.relu(x + conv(jax.nn.relu(x), name))
    return x.mean((1, 2)) @ params["net/~/head"]["w"] + params["net/~/head"]["b"]


HAIKU_RESNET = (
    {
        "net/~/stem": {"w": normal(3, 3, 3, 8)},
        "net/~/block_0": {"w": normal(3, 3, 8, 8, scale=0.1)},
        "net/~/block_1": {"w": normal(3, 3, 8, 8, scale=0.1)},
        "net/~/head": {"w": normal(8, 4), "b": normal(4)},
    },
    normal(1, 8, 8, 3),
)


def haiku_lstm(params, xs):
    def cell(state, x):
        h, c = state
        gates = jnp.concatenate([x, h], -1) @ params["lstm/linear"]["w"]
        i, g, f, o = jnp.split(gates + params["lstm/linear"]["b"], 4, -1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    start = jnp.zeros((xs.shape[1], 5)), jnp.zeros((xs.shape[1], 5))
    return lax.scan(cell, start, xs)[1]


HAIKU_LSTM = ({"lstm/linear": {"w": normal(8, 20), "b": normal(20)}}, normal(4, 2, 3))


# -- plain JAX -------------------------------------------------------------------------


def decode(params, tokens, cache, at):
    """One step of a decoder with a cache per example, at positions of their own."""
    x = params["table"][tokens]
    q, k, v = (x @ params[n] for n in "qkv")
    cache = jax.vmap(lambda c, n, i: lax.dynamic_update_slice(c, n[None], (i, 0)))(
        cache, jnp.concatenate([k, v], -1), at
    )
    keys, values = jnp.split(cache, 2, -1)
    scores = jnp.einsum("bd,btd->bt", q, keys) / 2
    scores = jnp.where(jnp.arange(6) <= at[:, None], scores, -jnp.inf)
    heard = jnp.einsum("bt,btd->bd", jax.nn.softmax(scores), values)
    return heard @ params["table"].T, cache


DECODE = (
    {"table": normal(9, 4), **{n: normal(4, 4) for n in "qkv"}},
    np.int32([1, 5]), normal(2, 6, 8), np.int32([0, 4]),
)  # fmt: skip


def diffusion_step(params, x, t, noise):
    """A reverse step of DDPM, whose schedule is a product of constants."""
    betas = jnp.linspace(1e-4, 0.02, 50)
    kept = jnp.cumprod(1 - betas)
    angle = t * jnp.exp(-jnp.arange(4) / 2.0)
    h = jnp.concatenate([x, jnp.broadcast_to(jnp.sin(angle), (x.shape[0], 4))], -1)
    guess = jax.nn.silu(h @ params["a"]) @ params["b"]
    mean = (x - betas[t] / jnp.sqrt(1 - kept[t]) * guess) / jnp.sqrt(1 - betas[t])
    return jnp.where(t > 0, mean + jnp.sqrt(betas[t]) * noise, mean)


DIFFUSION = (
    {"a": normal(8, 16), "b": normal(16, 4)}, normal(3, 4), np.int32(20), normal(3, 4),
)  # fmt: skip


def spectrogram(params, audio):
    """Log-mel features of frames of 400 samples, and a classifier."""
    starts = jnp.arange(0, 1200 - 400 + 1, 160)
    frames = audio[starts[:, None] + jnp.arange(400)] * jnp.hanning(400)
    power = jnp.abs(jnp.fft.rfft(frames, n=512)) ** 2
    return jnp.log(power @ params["mel"] + 1e-3).mean(0) @ params["w"]


SPECTROGRAM = ({"mel": np.abs(normal(257, 12)), "w": normal(12, 4)}, normal(1200))


def state_space(params, xs):
    """A linear recurrent unit: a diagonal complex recurrence, by an associative scan."""
    decay = jnp.exp(-jnp.exp(params["rate"]) + 1j * params["turn"])
    drive = xs @ (params["b"][0] + 1j * params["b"][1])

    def combine(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    decays = jnp.broadcast_to(decay, drive.shape)
    _, states = lax.associative_scan(combine, (decays, drive))
    return (states @ (params["c"][0] + 1j * params["c"][1])).real


STATE_SPACE = (
    {"rate": normal(5), "turn": normal(5), "b": normal(2, 3, 5), "c": normal(2, 5, 3)},
    normal(8, 3),
)


def bfloat16_mlp(params, x):
    x = jax.nn.gelu(x.astype(jnp.bfloat16) @ params["a"])
    return x @ params["b"]


BFLOAT16 = (
    {
        n: normal(*shape).astype(jnp.bfloat16)
        for n, shape in (("a", (6, 16)), ("b", (16, 3)))
    },
    normal(2, 6),
)


def fake_quantized(params, x):
    scale = jnp.max(jnp.abs(x)) / 127
    q = jnp.clip(jnp.round(x / scale), -128, 127).astype(jnp.int8)
    sums = lax.dot(q.astype(jnp.int32), params["w"].astype(jnp.int32))
    return sums.astype(jnp.float32) * scale * params["scale"]


QUANTIZED = (
    {"w": RNG.integers(-127, 128, (6, 4)).astype(np.int8), "scale": np.abs(normal(4))},
    normal(3, 6),
)


def detections(params, boxes, features):
    """Scores, sorted boxes and a greedy suppression of overlaps."""
    scores = jax.nn.sigmoid(features @ params["w"])
    order = jnp.argsort(-scores)
    found = boxes[order]
    low = jnp.maximum(found[:, None, :2], found[None, :, :2])
    high = jnp.minimum(found[:, None, 2:], found[None, :, 2:])
    shared = jnp.prod(jnp.clip(high - low, 0), -1)
    area = jnp.prod(found[:, 2:] - found[:, :2], -1)
    overlap = shared / (area[:, None] + area - shared)

    def keep(i, kept):
        is_hidden = jnp.any(jnp.where(jnp.arange(5) < i, overlap[i] * kept, 0) > 0.5)
        return kept.at[i].set(jnp.where(is_hidden, 0.0, 1.0))

    return found, scores[order], lax.fori_loop(0, 5, keep, jnp.ones(5))


_CORNERS = np.abs(normal(5, 2))
DETECTIONS = (
    {"w": normal(4)}, np.concatenate([_CORNERS, _CORNERS + 0.2], -1), normal(5, 4),
)  # fmt: skip

_TOKENS = RNG.integers(0, 20, (2, 6)).astype(np.int32)

MODELS = {
    "linen conv net": lambda: of_linen(ConvNet(), normal(1, 8, 8, 3)),
    "linen encoder": lambda: of_linen(Encoder(), _TOKENS),
    "linen bfloat16 encoder": lambda: of_linen(Encoder(jnp.bfloat16), _TOKENS),
    "linen recurrent": lambda: of_linen(Recurrent(), normal(2, 5, 3)),
    "linen separable": lambda: of_linen(Separable(), normal(1, 6, 6, 3)),
    "nnx mlp": lambda: of_nnx(NnxMlp(nnx.Rngs(0)), normal(2, 6)),
    "nnx vae": lambda: of_nnx(Vae(nnx.Rngs(0)), normal(2, 8), normal(2, 3)),
    "nnx block": lambda: of_nnx(NnxBlock(nnx.Rngs(0)), normal(2, 5, 8)),
    "equinox mixture": lambda: (mixture, MIXTURE),
    "equinox ode": lambda: (neural_ode, ODE),
    "equinox graph": lambda: (graph_network, GRAPH),
    "haiku resnet": lambda: (haiku_resnet, HAIKU_RESNET),
    "haiku lstm": lambda: (haiku_lstm, HAIKU_LSTM),
    "decode": lambda: (decode, DECODE),
    "diffusion step": lambda: (diffusion_step, DIFFUSION),
    "spectrogram": lambda: (spectrogram, SPECTROGRAM),
    "state space": lambda: (state_space, STATE_SPACE),
    "bfloat16": lambda: (bfloat16_mlp, BFLOAT16),
    "fake quantized": lambda: (fake_quantized, QUANTIZED),
    "detections": lambda: (detections, DETECTIONS),
}
"""(function, arguments) by name, made when they are called."""
