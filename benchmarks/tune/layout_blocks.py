"""Blocks of models, forward and backward, small enough to compile within seconds.

`BLOCKS` has, by name, functions without arguments that return a block. Sizes are
parameters, so that a prior is fitted on other sizes than it is judged on.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

BF16 = jnp.bfloat16


def _shaped(*shape, dtype=BF16):
    return jax.ShapeDtypeStruct(shape, dtype)


class Block(NamedTuple):
    """A forward function of parameters and inputs, with their shapes.

    has_input_gradient: whether a step makes one for the first input, as all blocks of a
        model do but the first.
    """

    forward: Callable
    params: Any
    inputs: tuple
    has_input_gradient: bool = True

    def step(self):
        """The loss and its gradients, as a function and its arguments."""

        def loss(params, *inputs):
            out = self.forward(params, *inputs)
            return out if out.ndim == 0 else jnp.mean(out.astype(jnp.float32) ** 2)

        argnums = (0, 1) if self.has_input_gradient else (0,)
        return jax.value_and_grad(loss, argnums), (self.params, *self.inputs)


# -- attention -------------------------------------------------------------------------


def _softmax(scores):
    return jax.nn.softmax(scores.astype(jnp.float32), -1).astype(scores.dtype)


def _attend(q, k, v):
    scores = jnp.einsum("bthd,bshd->bhts", q, k) * (q.shape[-1] ** -0.5)
    return jnp.einsum("bhts,bshd->bthd", _softmax(scores), v)


def attention(batch=4, length=512, width=512, heads=8):
    def forward(p, x):
        q = jnp.einsum("btd,dhk->bthk", x, p["q"])
        k = jnp.einsum("btd,dhk->bthk", x, p["k"])
        v = jnp.einsum("btd,dhk->bthk", x, p["v"])
        return x + jnp.einsum("bthk,hkd->btd", _attend(q, k, v), p["o"])

    each = width // heads
    params = {name: _shaped(width, heads, each) for name in "qkv"}
    params["o"] = _shaped(heads, each, width)
    return Block(forward, params, (_shaped(batch, length, width),))


def transformer(batch=8, length=512, width=512, heads=8, hidden=2048):
    def forward(p, x):
        q = jnp.einsum("btd,dhk->bthk", x, p["q"])
        k = jnp.einsum("btd,dhk->bthk", x, p["k"])
        v = jnp.einsum("btd,dhk->bthk", x, p["v"])
        x = x + jnp.einsum("bthk,hkd->btd", _attend(q, k, v), p["o"])
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

    each = width // heads
    params = {name: _shaped(width, heads, each) for name in "qkv"}
    params["o"] = _shaped(heads, each, width)
    params |= {"up": _shaped(width, hidden), "down": _shaped(hidden, width)}
    return Block(forward, params, (_shaped(batch, length, width),))


def attention_mlp(batch=8, length=512, width=512, heads=8, hidden=2048):
    """As `transformer`, but the weights of heads are made from matrices in the step."""
    each = width // heads

    def forward(p, x):
        q, k, v = (
            jnp.einsum("btd,dhk->bthk", x, p[name].reshape(width, heads, each))
            for name in "qkv"
        )
        x = x + _attend(q, k, v).reshape(x.shape) @ p["o"]
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

    params = {name: _shaped(width, width) for name in "qkvo"}
    params |= {"up": _shaped(width, hidden), "down": _shaped(hidden, width)}
    return Block(
        forward, params, (_shaped(batch, length, width),), has_input_gradient=False
    )


def attention_mlp_large():
    return attention_mlp(4, 1024, 1024, 8, 4096)


def cross_attention(batch=4, length=256, memory=512, width=512, heads=8):
    def forward(p, x, memory):
        def split(y, w):
            return (y @ w).reshape(*y.shape[:2], heads, width // heads)

        q, k, v = split(x, p["q"]), split(memory, p["k"]), split(memory, p["v"])
        return x + _attend(q, k, v).reshape(x.shape) @ p["o"]

    params = {name: _shaped(width, width) for name in "qkvo"}
    inputs = _shaped(batch, length, width), _shaped(batch, memory, width)
    return Block(forward, params, inputs)


def _rotate(x, angles):
    first, second = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def grouped_query(batch=4, length=512, width=512, heads=8, groups=2):
    def forward(p, x):
        each = width // heads
        places = jnp.arange(length)[:, None, None]
        angles = places / 1e4 ** (jnp.arange(each // 2) / (each // 2))
        q = jnp.einsum("btd,dhk->bthk", x, p["q"])
        k = jnp.einsum("btd,dhk->bthk", x, p["k"])
        v = jnp.einsum("btd,dhk->bthk", x, p["v"])
        q, k = _rotate(q, angles), _rotate(k, angles)
        q = q.reshape(batch, length, groups, heads // groups, each)
        scores = jnp.einsum("btghd,bsgd->bghts", q, k) * (each**-0.5)
        out = jnp.einsum("bghts,bsgd->btghd", _softmax(scores), v)
        out = out.reshape(batch, length, heads, each)
        return x + jnp.einsum("bthk,hkd->btd", out, p["o"])

    each = width // heads
    params = {
        "q": _shaped(width, heads, each),
        "k": _shaped(width, groups, each),
        "v": _shaped(width, groups, each),
        "o": _shaped(heads, each, width),
    }
    return Block(forward, params, (_shaped(batch, length, width),))


def window_attention(batch=4, side=32, window=8, width=128, heads=4):
    def forward(p, x):
        count = side // window
        x = x.reshape(batch, count, window, count, window, width)
        x = x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, window * window, width)
        qkv = (x @ p["qkv"]).reshape(*x.shape[:2], 3, heads, width // heads)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        out = _attend(q, k, v).reshape(x.shape) @ p["o"]
        out = out.reshape(batch, count, count, window, window, width)
        return out.transpose(0, 1, 3, 2, 4, 5).reshape(batch, side, side, width)

    params = {"qkv": _shaped(width, 3 * width), "o": _shaped(width, width)}
    return Block(forward, params, (_shaped(batch, side, side, width),))


# -- dense -----------------------------------------------------------------------------


def _layer_norm(x, scale):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(x.dtype) * scale


def mlp(batch=4, length=512, width=512, hidden=2048):
    def forward(p, x):
        y = _layer_norm(x, p["scale"])
        return x + jax.nn.gelu(y @ p["up"]) @ p["down"]

    params = {"up": _shaped(width, hidden), "down": _shaped(hidden, width)}
    params["scale"] = _shaped(width)
    return Block(forward, params, (_shaped(batch, length, width),))


def gated_mlp(batch=4, length=512, width=512, hidden=1408):
    def forward(p, x):
        wide = x.astype(jnp.float32)
        norm = wide * lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)
        y = norm.astype(x.dtype) * p["scale"]
        return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]

    params = {"gate": _shaped(width, hidden), "up": _shaped(width, hidden)}
    params |= {"down": _shaped(hidden, width), "scale": _shaped(width)}
    return Block(forward, params, (_shaped(batch, length, width),))


def experts(batch=8, length=256, width=256, hidden=512, count=8, capacity=80):
    def forward(p, x):
        gates = jax.nn.softmax((x @ p["router"]).astype(jnp.float32), -1)
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), count)
        place = jnp.cumsum(chosen, 1) * chosen - 1
        sent = jax.nn.one_hot(place, capacity, dtype=x.dtype)
        sent = sent * chosen[..., None].astype(x.dtype)
        weight = sent * jnp.max(gates, -1)[..., None, None].astype(x.dtype)
        given = jnp.einsum("btec,btd->ebcd", sent, x)
        hidden_ = jax.nn.relu(jnp.einsum("ebcd,edh->ebch", given, p["up"]))
        out = jnp.einsum("ebch,ehd->ebcd", hidden_, p["down"])
        return jnp.einsum("btec,ebcd->btd", weight, out)

    params = {
        "router": _shaped(width, count),
        "up": _shaped(count, width, hidden),
        "down": _shaped(count, hidden, width),
    }
    return Block(forward, params, (_shaped(batch, length, width),))


def vocabulary(batch=4, length=256, width=512, words=8192):
    def forward(p, tokens):
        x = p["table"][tokens]
        x = jnp.tanh(x @ p["mix"])
        logits = (x @ p["table"].T).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)

    params = {"table": _shaped(words, width), "mix": _shaped(width, width)}
    return Block(forward, params, (_shaped(batch, length, dtype=jnp.int32),), False)


# -- convolutions ----------------------------------------------------------------------


def _conv(x, w, stride=1, groups=1):
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _batch_norm(x, scale):
    wide = x.astype(jnp.float32)
    mean = wide.mean((0, 1, 2))
    variance = jnp.square(wide - mean).mean((0, 1, 2))
    return ((wide - mean) * lax.rsqrt(variance + 1e-5)).astype(x.dtype) * scale


def bottleneck(batch=16, side=28, width=256, inner=64):
    def forward(p, x):
        y = jax.nn.relu(_batch_norm(_conv(x, p["a"]), p["s1"]))
        y = jax.nn.relu(_batch_norm(_conv(y, p["b"]), p["s2"]))
        return jax.nn.relu(x + _batch_norm(_conv(y, p["c"]), p["s3"]))

    params = {"a": _shaped(1, 1, width, inner), "b": _shaped(3, 3, inner, inner)}
    params |= {"c": _shaped(1, 1, inner, width), "s1": _shaped(inner)}
    params |= {"s2": _shaped(inner), "s3": _shaped(width)}
    return Block(forward, params, (_shaped(batch, side, side, width),))


def upsampling(batch=8, side=16, width=128, out=64):
    def forward(p, x):
        y = jax.nn.relu(_conv(x, p["a"]))
        y = jnp.repeat(jnp.repeat(y, 2, 1), 2, 2)
        return _conv(jax.nn.relu(_batch_norm(y, p["scale"])), p["b"])

    params = {"a": _shaped(3, 3, width, out), "b": _shaped(3, 3, out, out)}
    params["scale"] = _shaped(out)
    return Block(forward, params, (_shaped(batch, side, side, width),))


def depthwise(batch=8, side=28, width=128):
    def forward(p, x):
        y = _layer_norm(_conv(x, p["depth"], groups=width), p["scale"])
        return x + jax.nn.gelu(y @ p["up"]) @ p["down"]

    params = {"depth": _shaped(7, 7, 1, width), "scale": _shaped(width)}
    params |= {"up": _shaped(width, 4 * width), "down": _shaped(4 * width, width)}
    return Block(forward, params, (_shaped(batch, side, side, width),))


def stem(batch=16, side=64, width=64):
    def forward(p, x):
        y = jax.nn.relu(_batch_norm(_conv(x, p["a"], 2), p["scale"]))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return _conv(y, p["b"])

    params = {"a": _shaped(7, 7, 3, width), "scale": _shaped(width)}
    params["b"] = _shaped(3, 3, width, width)
    return Block(forward, params, (_shaped(batch, side, side, 3),))


def joined(batch=8, side=32, width=64):
    def forward(p, x):
        low = jax.nn.relu(_conv(x, p["a"], 2))
        low = jax.nn.relu(_conv(low, p["b"]))
        high = jax.image.resize(low, (batch, side, side, 2 * width), "nearest")
        return _conv(jnp.concatenate([x, high], -1), p["c"])

    params = {"a": _shaped(3, 3, width, 2 * width)}
    params["b"] = _shaped(3, 3, 2 * width, 2 * width)
    params["c"] = _shaped(3, 3, 3 * width, width)
    return Block(forward, params, (_shaped(batch, side, side, width),))


# -- recurrent -------------------------------------------------------------------------


def lstm(batch=64, length=32, width=256):
    def forward(p, x):
        def step(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(x @ p["w"] + h @ p["u"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((batch, width), x.dtype)
        _, out = lax.scan(step, (start, start), x.transpose(1, 0, 2))
        return out

    params = {"w": _shaped(width, 4 * width), "u": _shaped(width, 4 * width)}
    return Block(forward, params, (_shaped(batch, length, width),))


def gru(batch=32, length=64, width=384):
    def forward(p, x):
        inputs = jnp.einsum("btd,dgh->tbgh", x, p["w"])

        def step(h, x):
            gates = jax.nn.sigmoid(x[:, :2] + jnp.einsum("bh,hgk->bgk", h, p["u"]))
            new = jnp.tanh(x[:, 2] + (gates[:, 0] * h) @ p["v"])
            h = h + gates[:, 1] * (new - h)
            return h, h

        _, out = lax.scan(step, jnp.zeros((batch, width), x.dtype), inputs)
        return out

    params = {"w": _shaped(width, 3, width), "u": _shaped(width, 2, width)}
    params["v"] = _shaped(width, width)
    return Block(forward, params, (_shaped(batch, length, width),))


BLOCKS = {
    fn.__name__: fn
    for fn in (
        attention,
        transformer,
        attention_mlp,
        attention_mlp_large,
        cross_attention,
        grouped_query,
        window_attention,
        mlp,
        gated_mlp,
        experts,
        vocabulary,
        bottleneck,
        upsampling,
        depthwise,
        stem,
        joined,
        lstm,
        gru,
    )
}

SMALLER = {
    "attention_small": partial(attention, 8, 256, 256, 4),
    "bottleneck_small": partial(bottleneck, 8, 14, 512, 128),
    "cross_small": partial(cross_attention, 2, 128, 256, 256, 4),
    "depthwise_small": partial(depthwise, 4, 14, 96),
    "experts_small": partial(experts, 4, 128, 128, 256, 4, 40),
    "gated_small": partial(gated_mlp, 2, 256, 384, 1024),
    "upsampling_small": partial(upsampling, 4, 8, 96, 32),
    "window_small": partial(window_attention, 2, 16, 8, 96, 3),
}
"""Blocks of other sizes, on which the models of the search are fitted."""
