"""Models of images and vectors: U-Nets, residual nets, mixtures, two networks at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.features.pipeline.found.training import (
    BATCH,
    VOCAB,
    WIDTH,
    Target,
    cross_entropy,
    pictures,
    tokens,
    trained,
    weights,
)


def conv(x, kernel, stride=1):
    """A convolution of images [B, H, W, C]."""
    dims = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=dims
    )


def kernel(inner, outer, seed, size=3):
    """The weights of a convolution."""
    return weights(size, size, inner, outer, seed=seed) / size


def group_norm(x, gain):
    """Normalizes each example over its pixels and channels."""
    mean = x.mean((1, 2, 3), keepdims=True)
    var = x.var((1, 2, 3), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * gain


def unet(
    levels: int = 2,
    *,
    joins: str = "concat",
    has_norm: bool = True,
    has_time: bool = False,
    remat: bool = False,
    optimizer: optax.GradientTransformation | None = None,
) -> Target:
    """A U-Net, whose skips are concatenated or added; with time: a denoiser."""
    width = [8 * 2**level for level in range(levels + 1)]
    params: dict = {"in": kernel(3, width[0], 0), "out": kernel(width[0], 3, 1)}
    for i in range(levels):
        double = 2 if joins == "concat" else 1
        params[f"down{i}"] = {"w": kernel(width[i], width[i + 1], 2 + i)}
        params[f"up{i}"] = {"w": kernel(width[i + 1], width[i], 12 + i)}
        params[f"join{i}"] = {"w": kernel(double * width[i], width[i], 22 + i)}
        params[f"down{i}"]["g"] = np.ones(width[i + 1], np.float32)
        params[f"join{i}"]["g"] = np.ones(width[i], np.float32)
    if has_time:
        params["time"] = weights(16, width[0], seed=40)

    def block(w, x, stride=1):
        x = conv(x, w["w"], stride)
        return jax.nn.silu(group_norm(x, w["g"]) if has_norm else x)

    run = jax.checkpoint(block, static_argnums=2) if remat else block

    def predict(params, x, time):
        x = conv(x, params["in"])
        if has_time:
            angles = time[:, None] * 2.0 ** jnp.arange(8)
            waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)
            x = x + (waves @ params["time"])[:, None, None]
        skips = []
        for i in range(levels):
            skips.append(x)
            x = run(params[f"down{i}"], x, 2)
        for i in reversed(range(levels)):
            x = jax.image.resize(x, skips[i].shape[:3] + x.shape[3:], "nearest")
            x = conv(x, params[f"up{i}"]["w"])
            skip = skips[i]
            x = jnp.concatenate([x, skip], -1) if joins == "concat" else x + skip
            x = run(params[f"join{i}"], x, 1)
        return conv(x, params["out"])

    def loss(params, batch):
        x, time = batch["x"], batch["time"]
        noisy = x + time[:, None, None, None] * batch["noise"]
        return jnp.mean((predict(params, noisy, time) - batch["noise"]) ** 2)

    time = np.linspace(0, 1, BATCH, dtype=np.float32)
    batch = {"x": pictures(), "noise": pictures()[::-1].copy(), "time": time}
    return trained(loss, params, batch, optimizer)


def resnet(
    num_layers: int = 4,
    *,
    is_scan: bool = False,
    optimizer: optax.GradientTransformation | None = None,
) -> Target:
    """Residual convolutions with pooling, and a classifier."""
    found = [
        {"w": kernel(16, 16, i), "g": np.ones(16, np.float32)}
        for i in range(num_layers)
    ]
    layers = jax.tree.map(lambda *each: np.stack(each), *found) if is_scan else found
    params = {
        "in": kernel(3, 16, 50),
        "layers": layers,
        "head": weights(16, 10, seed=51),
    }

    def layer(x, w):
        return x + jax.nn.relu(group_norm(conv(x, w["w"]), w["g"]))

    def loss(params, batch):
        x = conv(batch["x"], params["in"])
        if is_scan:
            x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, params["layers"])
        else:
            for w in params["layers"]:
                x = layer(x, w)
        return cross_entropy(x.mean((1, 2)) @ params["head"], batch["label"])

    label = tokens(4, 1)[:, 0] % 10
    return trained(loss, params, {"x": pictures(), "label": label}, optimizer)


def mixture(
    num_layers: int = 2, optimizer: optax.GradientTransformation | None = None
) -> Target:
    """Layers of four experts, of which each token takes the softmax."""

    def layer(seed):
        return {
            "gate": weights(WIDTH, 4, seed=seed),
            "up": weights(4, WIDTH, 2 * WIDTH, seed=seed + 1),
            "down": weights(4, 2 * WIDTH, WIDTH, seed=seed + 2),
        }

    params = {
        "emb": weights(VOCAB, WIDTH, seed=99),
        "layers": [layer(3 * i) for i in range(num_layers)],
    }

    def loss(params, batch):
        x = params["emb"][batch["x"]]
        for w in params["layers"]:
            shares = jax.nn.softmax(x @ w["gate"])
            hidden = jax.nn.relu(jnp.einsum("btd,edf->btef", x, w["up"]))
            x = x + jnp.einsum("btef,efd,bte->btd", hidden, w["down"], shares)
        return cross_entropy(x @ params["emb"].T, batch["y"])

    return trained(loss, params, {"x": tokens(1), "y": tokens(2)}, optimizer)


def dense(params, x):
    """A perceptron."""
    *inner, last = params
    for w in inner:
        x = jnp.tanh(x @ w)
    return x @ last


def dense_weights(num_layers, seed, inner=WIDTH):
    """The weights of a perceptron of one width."""
    return [weights(inner, inner, seed=seed + i) for i in range(num_layers)]


def autoencoder(optimizer: optax.GradientTransformation | None = None) -> Target:
    """A variational autoencoder; the decoder's weights are the encoder's, transposed."""
    params = {"encoder": dense_weights(4, 0), "spread": weights(WIDTH, WIDTH, seed=9)}

    def loss(params, batch):
        code = dense(params["encoder"], batch["x"])
        spread = jnp.tanh(batch["x"] @ params["spread"])
        sample = code + jnp.exp(spread) * batch["noise"]
        again = dense([w.T for w in params["encoder"][::-1]], sample)
        divergence = jnp.mean(code**2 + jnp.exp(2 * spread) - 2 * spread)
        return jnp.mean((again - batch["x"]) ** 2) + 0.1 * divergence

    batch = {
        "x": weights(BATCH, WIDTH, seed=20),
        "noise": weights(BATCH, WIDTH, seed=21),
    }
    return trained(loss, params, batch, optimizer)


def adversaries() -> Target:
    """A generator and a critic, each with an optimizer of its own, in one step."""
    first, second = optax.adam(1e-2), optax.rmsprop(1e-2)

    def critic_loss(critic, maker, batch):
        made = dense(maker, batch["noise"])
        real, fake = dense(critic, batch["x"]), dense(critic, made)
        return jnp.mean(jax.nn.softplus(fake)) + jnp.mean(jax.nn.softplus(-real))

    def maker_loss(maker, critic, batch):
        return jnp.mean(jax.nn.softplus(-dense(critic, dense(maker, batch["noise"]))))

    def step(params, states, batch):
        maker, critic = params["maker"], params["critic"]
        made, grads = jax.value_and_grad(maker_loss)(maker, critic, batch)
        judged, slopes = jax.value_and_grad(critic_loss)(critic, maker, batch)
        updates, maker_state = first.update(grads, states["maker"])
        changes, critic_state = second.update(slopes, states["critic"])
        params = {
            "maker": optax.apply_updates(maker, updates),
            "critic": optax.apply_updates(critic, changes),
        }
        return params, {"maker": maker_state, "critic": critic_state}, (made, judged)

    params = {"maker": dense_weights(3, 0), "critic": dense_weights(3, 10)}
    states = {
        "maker": first.init(params["maker"]),
        "critic": second.init(params["critic"]),
    }
    batch = {
        "x": weights(BATCH, WIDTH, seed=20),
        "noise": weights(BATCH, WIDTH, seed=21),
    }
    return step, (params, states, batch)


def pair(optimizer: optax.GradientTransformation | None = None) -> Target:
    """Two towers with a loss over all pairs of a batch, which microbatches do not see."""
    params = {"left": dense_weights(3, 0), "right": dense_weights(3, 10)}

    def loss(params, batch):
        left, right = (dense(params[n], batch[n]) for n in ("left", "right"))
        scores = left @ right.T
        labels = jnp.arange(scores.shape[0])
        return cross_entropy(scores, labels) + cross_entropy(scores.T, labels)

    left, right = (weights(BATCH, WIDTH, seed=seed) for seed in (20, 21))
    batch = {"left": left, "right": right}
    return trained(loss, params, batch, optimizer)


def averaged(decay: float = 0.9) -> Target:
    """A perceptron with clipped gradients, and a moving average of its weights."""
    params = dense_weights(6, 0)

    def loss(params, batch):
        return jnp.mean((dense(params, batch["x"]) - batch["y"]) ** 2)

    def step(state, batch):
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        size = optax.tree.norm(grads)
        scale = 0.1 * jnp.minimum(1.0, 1.0 / size)
        params = jax.tree.map(lambda w, g: w - scale * g, state["params"], grads)
        mean = jax.tree.map(
            lambda m, w: decay * m + (1 - decay) * w, state["mean"], params
        )
        new = {"params": params, "mean": mean, "count": state["count"] + 1}
        return new, {"loss": value, "norm": size}

    batch = {"x": weights(BATCH, WIDTH, seed=20), "y": weights(BATCH, WIDTH, seed=21)}
    return step, ({"params": params, "mean": params, "count": np.int32(0)}, batch)
