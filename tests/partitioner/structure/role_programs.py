"""Programs in the styles of plain JAX, optax, equinox, flax and haiku, with their roles.

Each function returns (function, arguments, roles). The roles are those that a person would
give: a pattern of paths for each role, `params`, `optimizer`, `carried` or `data`. Keys,
scalars and what no pattern matches have no role.
"""

from functools import partial

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

P, D = {"p.**": "params"}, "data"


def S(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def I(*dims):  # noqa: E743
    return S(*dims, dtype=jnp.int32)


KEY = jax.eval_shape(lambda: jax.random.key(0))
MLP = {"a": S(16, 32), "b": S(32, 8)}
LEFT = {"a": S(32, 16), "b": S(8, 32)}


def net(p, x):
    return jnp.tanh(x @ p["a"]) @ p["b"]


def left(p, x):
    return p["b"] @ jnp.tanh(p["a"] @ x)


def descend(p, grads):
    return jax.tree.map(lambda w, g: w - 0.1 * g, p, grads)


def sgd(loss):
    def step(p, x, *rest):
        value, grads = jax.value_and_grad(loss)(p, x, *rest)
        return descend(p, grads), value

    return step


def vmapped(model, x):
    """An equinox model of one example, over a batch."""
    p, static = eqx.partition(model, eqx.is_array)
    return lambda p, x: jax.vmap(eqx.combine(p, static))(x), (p, x), {**P, "x": D}


# -- weights on either side ---------------------------------------------------------------


def equinox_perceptron():
    return vmapped(eqx.nn.MLP(16, 8, 32, 2, key=jax.random.key(1)), S(64, 16))


def equinox_linear():
    return vmapped(eqx.nn.Linear(16, 8, key=jax.random.key(1)), S(64, 16))


def equinox_attention():
    attend = eqx.nn.MultiheadAttention(4, 32, key=jax.random.key(1))
    p, static = eqx.partition(attend, eqx.is_array)

    def serve(p, x):
        return jax.vmap(lambda x: eqx.combine(p, static)(x, x, x))(x)

    return serve, (p, S(8, 16, 32)), {**P, "x": D}


def equinox_convolutions():
    keys = jax.random.split(jax.random.key(1))
    layers = [
        eqx.nn.Conv2d(3, 8, 3, key=keys[0]),
        eqx.nn.Lambda(jnp.ravel),
        eqx.nn.Linear(8 * 36, 10, key=keys[1]),
    ]
    return vmapped(eqx.nn.Sequential(layers), S(16, 3, 8, 8))


def equinox_recurrent():
    cell = eqx.nn.GRUCell(16, 32, key=jax.random.key(1))
    p, static = eqx.partition(cell, eqx.is_array)

    def serve(p, x):
        step = eqx.combine(p, static)

        def run(x):
            return lax.scan(lambda h, x: (step(x, h), None), jnp.zeros(32), x)[0]

        return jax.vmap(run)(x)

    return serve, (p, S(64, 12, 16)), {**P, "x": D}


def attention(order):
    """Where heads come before time in the result, einsum has the weight on the left."""

    def serve(p, x):
        q, k, v = (jnp.einsum(f"btd,dhe->{order}", x, p[n]) for n in "qkv")
        if order == "bthe":
            q, k, v = (jnp.swapaxes(each, 1, 2) for each in (q, k, v))
        scores = jax.nn.softmax(jnp.einsum("bhte,bhse->bhts", q, k))
        return jnp.einsum("bhts,bhse,hed->btd", scores, v, p["o"])

    p = {**{n: S(32, 4, 8) for n in "qkv"}, "o": S(4, 8, 32)}
    return serve, (p, S(8, 16, 32)), {**P, "x": D}


def transposed_weights():
    return left, (LEFT, S(16, 64)), {**P, "x": D}


def separate_arrays():
    roles = {"w1": "params", "w2": "params", "x": D}
    args = S(32, 16), S(8, 32), S(16, 64)
    return lambda w1, w2, x: w2 @ jnp.tanh(w1 @ x), args, roles


def one_layer_with_a_bias():
    roles = {"w": "params", "b": "params", "x": D}
    return lambda w, b, x: w @ x + b[:, None], (S(32, 16), S(32), S(16, 64)), roles


def scanned_layers():
    def serve(p, x):
        return lax.scan(lambda h, w: (h + left(w, h), None), x, p)[0]

    return serve, ({"a": S(6, 64, 16), "b": S(6, 16, 64)}, S(16, 128)), {**P, "x": D}


def ensemble():
    serve = jax.vmap(left, (0, None))
    p = {"a": S(4, 32, 16), "b": S(4, 8, 32)}
    return lambda p, x: serve(p, x), (p, S(16, 64)), {**P, "x": D}


# -- what touches the data before its first product ---------------------------------------


def router_jitter():
    def loss(p, x, key):
        s = jax.nn.softmax((x * jax.random.uniform(key, x.shape)) @ p["router"])
        return (jnp.einsum("gte,gtd->ged", s, x) @ p["a"]).mean()

    p = {"router": S(16, 8), "a": S(16, 32)}
    return sgd(loss), (p, S(8, 24, 16), KEY), {**P, "x": D}


def input_dropout():
    def loss(p, x, key):
        kept = jax.random.bernoulli(key, 0.9, x.shape)
        return (net(p, jnp.where(kept, x / 0.9, 0)) ** 2).mean()

    return sgd(loss), (MLP, S(64, 16), KEY), {**P, "x": D}


def padding_mask():
    def loss(p, x):
        y = net(p, x["t"] * x["m"][..., None])
        return (y**2 * x["m"][..., None]).sum() / x["m"].sum()

    return sgd(loss), (MLP, {"t": S(8, 24, 16), "m": S(8, 24)}), {**P, "x.*": D}


def served_images():
    def serve(p, x):
        x = (x.astype(jnp.float32) / 255 - p["mean"]) / p["std"]
        numbers = ("NHWC", "HWIO", "NHWC")
        h = lax.conv_general_dilated(
            x, p["k"], (1, 1), "SAME", dimension_numbers=numbers
        )
        return jax.nn.relu(h).mean((1, 2)) @ p["w"]

    p = {"k": S(3, 3, 3, 16), "w": S(16, 10), "mean": S(3), "std": S(3)}
    return serve, (p, S(8, 32, 32, 3, dtype=jnp.uint8)), {**P, "x": D}


# -- frozen weights, and other state that is handed back ----------------------------------


def quantized_base():
    def step(p, batch):
        def loss(adapter):
            base = p["q"].astype(jnp.float32) * p["s"]
            low = (batch["x"] @ adapter["a"]) @ adapter["b"]
            return ((batch["x"] @ base + low - batch["y"]) ** 2).mean()

        adapter = {name: p[name] for name in "ab"}
        value, grads = jax.value_and_grad(loss)(adapter)
        return {"q": p["q"], "s": p["s"], **descend(adapter, grads)}, value

    p = {"q": S(32, 64, dtype=jnp.int8), "s": S(1, 64), "a": S(32, 4), "b": S(4, 64)}
    return step, (p, {"x": S(64, 32), "y": S(64, 64)}), {**P, "batch.*": D}


def old_policy():
    def log_p(p, seen, action):
        log_all = jax.nn.log_softmax(net(p, seen))
        return jnp.take_along_axis(log_all, action[:, None], 1)[:, 0]

    def step(p, seen, action, gain):
        def loss(new):
            ratio = jnp.exp(log_p(new, seen, action) - log_p(p["old"], seen, action))
            return -jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain).mean()

        value, grads = jax.value_and_grad(loss)(p["new"])
        return {"new": descend(p["new"], grads), "old": p["old"]}, value

    args = {"new": MLP, "old": MLP}, S(64, 16), I(64), S(64)
    return step, args, {**P, "seen": D, "action": D, "gain": D}


def averaged_copy():
    def step(s, x):
        value, grads = jax.value_and_grad(lambda p: (net(p, x) ** 2).mean())(s["p"])
        p = descend(s["p"], grads)
        ema = jax.tree.map(lambda e, w: 0.99 * e + 0.01 * w, s["ema"], p)
        return {"p": p, "ema": ema}, value

    roles = {"s.p.*": "params", "s.ema.*": "optimizer", "x": D}
    return step, ({"p": MLP, "ema": MLP}, S(64, 16)), roles


def frozen_layers():
    def step(head, p, x):
        def loss(head):
            return ((head["w"] @ jnp.tanh(left(p, x))) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(head)
        return descend(head, grads), value

    return step, ({"w": S(4, 8)}, LEFT, S(16, 64)), {**P, "head.w": "params", "x": D}


def truncated_backpropagation():
    def step(p, c, x):
        def loss(p):
            h = jnp.tanh(x @ p["a"] + c["h"] @ p["u"])
            return ((h @ p["b"]) ** 2).mean(), h

        (value, h), grads = jax.value_and_grad(loss, has_aux=True)(p)
        return descend(p, grads), {"h": h}, value

    args = {**MLP, "u": S(32, 32)}, {"h": S(64, 32)}, S(64, 16)
    return step, args, {**P, "c.h": "carried", "x": D}


def served_recurrent():
    def serve(p, c, x):
        gate = jax.nn.sigmoid(x @ p["z"] + c["h"] @ p["u"])
        h = (1 - gate) * c["h"] + gate * jnp.tanh(x @ p["a"])
        return {"h": h}, h @ p["b"]

    args = {**MLP, "z": S(16, 32), "u": S(32, 32)}, {"h": S(64, 32)}, S(64, 16)
    return serve, args, {**P, "c.h": "carried", "x": D}


# -- single arrays as state ---------------------------------------------------------------


def momentum_of_an_array():
    def step(w, m, x):
        value, grads = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        m = 0.9 * m + grads
        return w - 0.1 * m, m, value

    args = S(64, 64), S(64, 64), S(64, 64)
    return step, args, {"w": "params", "m": "optimizer", "x": D}


def optax_of_an_array():
    optimizer = optax.adam(1e-3)

    def step(w, o, x, y):
        value, grads = jax.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(w)
        updates, o = optimizer.update(grads, o, w)
        return optax.apply_updates(w, updates), o, value

    w = S(16, 8)
    args = w, jax.eval_shape(optimizer.init, w), S(64, 16), S(64, 8)
    return step, args, {"w": "params", "o.**": "optimizer", "x": D, "y": D}


def array_of(loss, w, x):
    def step(w, x):
        value, grads = jax.value_and_grad(loss)(w, x)
        return w - 0.1 * grads, value

    return step, (w, x), {"w": "params", "x": D}


def embedding():
    return array_of(lambda w, x: (w[x].mean(1) ** 2).mean(), S(128, 32), I(64, 16))


def filtered():
    def loss(w, x):
        return (jnp.fft.irfft(jnp.fft.rfft(x) * w) ** 2).mean()

    return array_of(loss, S(33), S(32, 64))


# -- other steps --------------------------------------------------------------------------


def adversarial_examples():
    def attack(p, x):
        return x + 0.1 * jnp.sign(jax.grad(lambda x: (net(p, x) ** 2).mean())(x))

    return attack, (MLP, S(64, 16)), {**P, "x": "carried"}


def graph_network():
    def loss(p, x, links):
        return ((links @ (jnp.tanh(links @ (x @ p["a"])) @ p["b"])) ** 2).mean()

    return sgd(loss), (MLP, S(64, 16), S(64, 64)), {**P, "x": D, "rest.0": D}


def two_towers():
    def serve(p, x, y):
        return net(p["images"], x) @ net(p["texts"], y).T

    p = {"images": MLP, "texts": {"a": S(24, 32), "b": S(32, 8)}}
    return serve, (p, S(64, 16), S(32, 24)), {**P, "x": D, "y": D}


def hand_written_gradients():
    def step(p, x, y):
        h = jnp.tanh(x @ p["a"])
        error = h @ p["b"] - y
        back = (error @ p["b"].T) * (1 - h * h)
        return descend(p, {"a": x.T @ back, "b": h.T @ error}), (error**2).mean()

    return step, (MLP, S(64, 16), S(64, 8)), {**P, "x": D, "y": D}


def attention_over_inputs():
    def attend(q, k, v):
        scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", q, k))
        return jnp.einsum("bst,btd->bsd", scores, v)

    return attend, (S(8, 16, 32),) * 3, dict.fromkeys("qkv", D)


# -- libraries ----------------------------------------------------------------------------


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=True)(nn.Conv(8, (3, 3))(x)))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


def linen_classifier():
    x = S(8, 8, 8, 3)
    p = jax.eval_shape(Classifier().init, jax.random.key(0), x)
    return lambda p, x: Classifier().apply(p, x), (p, x), {**P, "x": D}


def nnx_perceptron():
    def build():
        rngs = nnx.Rngs(0)
        return nnx.Sequential(
            nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)
        )

    graph, p = nnx.split(nnx.eval_shape(build))
    return lambda p, x: nnx.merge(graph, p)(x), (p, S(64, 16)), {**P, "x": D}


def haiku_attention():
    def model(x, mask):
        draw = hk.initializers.VarianceScaling()
        seen = mask[:, None, None, :] > 0
        return hk.Linear(8)(
            hk.MultiHeadAttention(4, 8, w_init=draw)(x, x, x, mask=seen)
        )

    pair, optimizer = hk.transform(model), optax.adam(1e-3)
    p = jax.eval_shape(pair.init, KEY, S(8, 16, 32), S(8, 16))

    def step(p, o, key, b):
        def loss(p):
            return ((pair.apply(p, key, b["x"], b["mask"]) - b["y"]) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(p)
        updates, o = optimizer.update(grads, o)
        return optax.apply_updates(p, updates), o, value

    batch = {"x": S(8, 16, 32), "mask": S(8, 16), "y": S(8, 16, 8)}
    args = p, jax.eval_shape(optimizer.init, p), KEY, batch
    return step, args, {**P, "o.**": "optimizer", "b.*": D}


def merged_adapters():
    def serve(base, adapters, x):
        for w, pair in zip(base, adapters, strict=True):
            x = jax.nn.relu(x @ (w["w"] + 2.0 * (pair["a"] @ pair["b"])) + w["bias"])
        return x

    base = [{"w": S(32, 32), "bias": S(32)}] * 3
    adapters = [{"a": S(32, 4), "b": S(4, 32)}] * 3
    wanted = {"base.**": "params", "adapters.**": "params", "x": D}
    return serve, (base, adapters, S(64, 32)), wanted


def one_merged_adapter(side):
    def serve(p, x):
        w = p["w"] + (p["b"] @ p["a"]).astype(p["w"].dtype) * 0.5
        return x @ w.T if side == "right" else jax.vmap(lambda v: w @ v + p["bias"])(x)

    p = {"w": S(48, 32), "a": S(4, 32), "b": S(48, 4), "bias": S(48)}
    if side == "right":
        del p["bias"]
    return serve, (p, S(64, 32)), {**P, "x": D}


def merged_arrays(order):
    def serve(w, b, a, x):
        merged = w + b @ a
        return x @ merged if order == "xw" else merged @ x.T

    wanted = {"w": "params", "a": "params", "b": "params", "x": D}
    return serve, (S(32, 32), S(32, 4), S(4, 32), S(64, 32)), wanted


def merged_quantized():
    def serve(p, x):
        base = p["q"].astype(jnp.float32) * p["s"]
        return jnp.tanh(x @ (base + p["a"] @ p["b"] / 4)) @ p["out"]

    p = {"q": S(32, 48, dtype=jnp.int8), "s": S(48), "a": S(32, 4), "b": S(4, 48)}
    return serve, ({**p, "out": S(48, 8)}, S(64, 32)), {**P, "x": D}


def scanned_adapters():
    def serve(base, adapters, x):
        def layer(h, w):
            return jnp.tanh(h @ (w[0] + w[1]["a"] @ w[1]["b"])), None

        return lax.scan(layer, x, (base, adapters))[0]

    adapters = {"a": S(3, 32, 4), "b": S(3, 4, 32)}
    wanted = {"base": "params", "adapters.*": "params", "x": D}
    return serve, (S(3, 32, 32), adapters, S(64, 32)), wanted


def skipped_coordinates():
    def serve(p, batch):
        return jnp.tanh(batch["h"] + batch["at"] @ p["in"]) @ p["out"]

    p = {"in": S(3, 32), "out": S(32, 8)}
    return serve, (p, {"h": S(64, 32), "at": S(64, 3)}), {"p.*": "params", "batch.*": D}


PROGRAMS = [
    equinox_perceptron, equinox_linear, equinox_attention, equinox_convolutions,
    equinox_recurrent, partial(attention, "bthe"), partial(attention, "bhte"),
    transposed_weights, separate_arrays, one_layer_with_a_bias, scanned_layers, ensemble,
    router_jitter, input_dropout, padding_mask, served_images, quantized_base, old_policy,
    averaged_copy, frozen_layers, truncated_backpropagation, served_recurrent,
    momentum_of_an_array, optax_of_an_array, embedding, filtered, adversarial_examples,
    graph_network, two_towers, hand_written_gradients, attention_over_inputs,
    linen_classifier, nnx_perceptron, haiku_attention, merged_adapters,
    partial(one_merged_adapter, "right"), partial(one_merged_adapter, "left"),
    partial(merged_arrays, "xw"), partial(merged_arrays, "wx"), merged_quantized,
    scanned_adapters, skipped_coordinates,
]  # fmt: skip
