"""A space of tiny models, as a file for `meshwright nas search`."""

import jax
import numpy as np

from meshwright.codesign import nas


def space():
    return nas.Space({"width": nas.Choice(4, 64), "layers": nas.Range(0, 1)})


def build(candidate):
    sizes = [6, *[candidate["width"]] * candidate["layers"], 2]

    def init(key, x):
        keys = jax.random.split(key, len(sizes))
        pairs = zip(keys, sizes, sizes[1:], strict=False)
        return [jax.random.normal(k, (a, b)) / a**0.5 for k, a, b in pairs]

    def apply(params, x):
        for weights in params[:-1]:
            x = jax.nn.relu(x @ weights)
        return x @ params[-1]

    return init, apply


def data():
    """Whether the product of the first two numbers is positive: no line tells it."""
    x = np.random.default_rng(0).normal(size=(500, 6)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)
    return x[:400], y[:400], x[400:], y[400:]


baseline = {"width": 64, "layers": 1}
evaluate = nas.Trained(build, data, steps=60, rate=0.05, proxies=("synflow",))
