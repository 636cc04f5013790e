"""A space of small image models on 8 x 8 digits, for `meshwright nas search`.

    meshwright nas search examples/digits_space.py --machine v100 --trials 40 --out found/

It needs scikit-learn, which brings the 1,797 images, and flax (the extra `search`).
"""

from typing import Any

import flax.linen as nn
import numpy as np

from meshwright.codesign import nas


class Model(nn.Module):
    """Convolutions, whole or depthwise, and a linear head."""

    widths: list[int]
    kind: str
    kernel: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for width in self.widths:
            window = (self.kernel, self.kernel)
            if self.kind == "fused":
                x = nn.Conv(width, window, strides=2)(x)
            else:
                x = nn.Conv(width, (1, 1))(x)
                x = nn.Conv(width, window, strides=2, feature_group_count=width)(x)
            x = nn.relu(nn.LayerNorm()(x))
        return nn.Dense(10)(x.mean(axis=(1, 2)))


def data() -> tuple[Any, Any, Any, Any]:
    """Images [N, 8, 8, 1] and labels, to train on and to test with."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        wanted = "pip install 'meshwright[search,zoo]', or make demo-nas"
        raise ImportError(f"the digits come with scikit-learn: {wanted}") from error

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = (digits.images[order, :, :, None] / 16 - 0.3).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    return images[:1297], labels[:1297], images[1297:], labels[1297:]


def space() -> nas.Space:
    """Width and number of layers, kernel, and kind of convolution."""
    return nas.Space(
        {
            "kernel": nas.Choice(2, 3, 5),
            "kind": nas.Choice("fused", "depthwise"),
            "widths": nas.Repeat(nas.Range(8, 64, step=8), 1, 3),
        },
        where=lambda c: c["kernel"] < 5 or max(c["widths"]) <= 32,
    )


def build(candidate: dict[str, Any]) -> Model:
    """The model of a candidate."""
    return Model(**candidate)


baseline = {"kernel": 3, "kind": "fused", "widths": [32, 64]}
evaluate = nas.Trained(
    build, data, steps=60, serve_batch=128, proxies=("synflow", "naswot")
)
