"""The published nets of EfficientNet and EfficientNet-X: tables of stages and scales.

Widths, depths and image sizes are those of the code that both papers released. At the
same B, EfficientNet-X with EfficientNet's own scales is what its paper compares; its
scales for TPUs and for GPUs come from a search for accuracy and latency.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from zoo.attention import ACTIVATIONS
from zoo.mbconv import SpaceToDepth, Stage
from zoo.workload import check_numbers, choose

STAGES = (
    Stage(1, 3, 1, 1, 32, 16),
    Stage(2, 3, 2, 6, 16, 24),
    Stage(2, 5, 2, 6, 24, 40),
    Stage(3, 3, 2, 6, 40, 80),
    Stage(3, 5, 1, 6, 80, 112),
    Stage(4, 5, 2, 6, 112, 192),
    Stage(1, 3, 1, 6, 192, 320),
)
"""EfficientNet-B0: repeats, kernel, stride, expand, inputs, outputs."""

X_STAGES = (
    replace(STAGES[0], activation="relu", space_to_depth=SpaceToDepth.BEGINS),
    replace(STAGES[1], is_fused=True, space_to_depth=SpaceToDepth.ENDS),
    replace(STAGES[2], is_fused=True),
    *(replace(stage, activation="relu") for stage in STAGES[3:]),
)
"""EfficientNet-X-B0."""

EDGE_STAGES = (
    Stage(1, 3, 1, 4, 32, 24, "relu", is_fused=True, expanded=24, has_skip=False),
    Stage(2, 3, 2, 8, 24, 32, "relu", is_fused=True),
    Stage(4, 3, 2, 8, 32, 48, "relu", is_fused=True),
    Stage(5, 5, 2, 8, 48, 96, "relu"),
    Stage(4, 5, 1, 8, 96, 144, "relu"),
    Stage(2, 5, 2, 8, 144, 192, "relu"),
)
"""EfficientNet-EdgeTPU-S, for a small accelerator: no squeeze and excitation."""

IMAGES = 1_281_167
"""Of ImageNet's training set: one epoch."""


@dataclass(frozen=True, slots=True)
class Config:
    """A net, its images and its training.

    width, depth: what channels and repeats of `stages` are multiplied by.
    stem, head: channels of the first and the last convolution, before that.
    activation: of both.
    squeeze: channels of squeeze and excitation for each that comes into a block.
    survival: of the last block; it falls from 1 in equal steps.
    momentum: of batch norm.
    rate, decay_steps: the learning rate, and after how many steps it is 3 % less.
    """

    width: float
    depth: float
    size: int
    dropout: float
    stages: tuple[Stage, ...] = STAGES
    activation: str = "silu"
    squeeze: float = 0.25
    stem: int = 32
    head: int = 1280
    classes: int = 1000
    batch: int = 128
    survival: float = 0.8
    momentum: float = 0.99
    rate: float = 0.256 * 128 / 4096  # 0.256 is for batches of 4096
    decay_steps: float = 2.4 * IMAGES / 128

    def __post_init__(self) -> None:
        check_numbers(self)
        choose(self.activation, ACTIVATIONS, "activation")
        if min(self.width, self.depth) <= 0:
            raise ValueError(f"width and depth are positive; got {self}")
        if not (0 <= self.dropout < 1 and 0 < self.survival <= 1):
            got = f"{self.dropout} and {self.survival}"
            raise ValueError(f"dropout and survival are shares in [0, 1]; got {got}")
        given = [self.stem, *(stage.outputs for stage in self.stages)]
        for i, (outputs, stage) in enumerate(zip(given, self.stages, strict=False)):
            if stage.inputs != outputs:
                what = f"stage {i} takes {stage.inputs} channels"
                raise ValueError(f"{what}; there are {outputs} before it")
        none = SpaceToDepth.NONE
        places = [none, *(stage.space_to_depth for stage in self.stages), none]
        for place, after in pairwise(places):
            if (place is SpaceToDepth.BEGINS) != (after is SpaceToDepth.ENDS):
                raise ValueError(
                    "space to depth begins in one stage and ends in the next; got "
                    f"{', '.join(place.value for place in places[1:-1])}"
                )


_DROPOUTS = (0.2, 0.2, 0.3, 0.3, 0.4, 0.4, 0.5, 0.5)

_X_SQUEEZE = (1.0, 0.5) + 6 * (0.25,)
"""EfficientNet-X squeezes less in its two smallest nets."""

Scaling = tuple[tuple[float, float, int], ...]
"""Width, depth and image size of B0, B1, ..."""

COMPOUND: Scaling = (
    (1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260), (1.2, 1.4, 300),
    (1.4, 1.8, 380), (1.6, 2.2, 456), (1.8, 2.6, 528), (2.0, 3.1, 600),
)  # fmt: skip

TPU: Scaling = (
    (1.0, 1.0, 224), (1.05, 1.09, 229), (1.13, 1.29, 244), (1.27, 1.62, 263),
    (1.54, 2.38, 299), (1.96, 2.76, 332), (2.75, 3.01, 328), (3.26, 3.44, 350),
)  # fmt: skip

GPU: Scaling = (
    (1.0, 1.0, 224), (1.05, 1.09, 229), (1.13, 1.24, 237), (1.31, 1.63, 255),
    (1.63, 2.40, 282), (1.94, 3.29, 306), (2.25, 4.28, 328), (2.58, 5.46, 350),
)  # fmt: skip


def family(scaling: Scaling) -> dict[str, Config]:
    """EfficientNet's nets at these scales, by `b0` to `b7`."""
    pairs = zip(scaling, _DROPOUTS, strict=True)
    return {f"b{i}": Config(*scale, drop) for i, (scale, drop) in enumerate(pairs)}


def family_x(scaling: Scaling) -> dict[str, Config]:
    """EfficientNet-X's nets at these scales, by `b0` to `b7`."""
    parts = {"stages": X_STAGES, "activation": "relu"}
    squeezed = zip(family(scaling).items(), _X_SQUEEZE, strict=True)
    return {name: replace(c, squeeze=share, **parts) for (name, c), share in squeezed}


_EDGE: Scaling = ((1.0, 1.0, 224), (1.0, 1.1, 240), (1.2, 1.4, 300))


def family_edge() -> dict[str, Config]:
    """EfficientNet-EdgeTPU's nets, by `edge_s`, `edge_m` and `edge_l`."""
    parts = {"stages": EDGE_STAGES, "activation": "relu", "squeeze": 0.0}
    scaled = zip("sml", _EDGE, _DROPOUTS[1:4], strict=True)
    return {f"edge_{n}": Config(*scale, drop, **parts) for n, scale, drop in scaled}


SIZES = {
    **family(COMPOUND),
    **{f"x_{name}": config for name, config in family_x(COMPOUND).items()},
    **{f"x_tpu_{name}": c for name, c in family_x(TPU).items() if name != "b0"},
    **{f"x_gpu_{name}": c for name, c in family_x(GPU).items() if name != "b0"},
    **family_edge(),
}

TINY = Config(
    1, 1, size=32, dropout=0.1, stem=16, head=64, classes=8, batch=32, squeeze=0.5,
    survival=0.9, momentum=0.9, rate=2e-3, decay_steps=10, activation="relu",
    stages=(
        Stage(1, 3, 1, 1, 16, 8, "relu", space_to_depth=SpaceToDepth.BEGINS),
        Stage(2, 3, 2, 4, 8, 16, is_fused=True, space_to_depth=SpaceToDepth.ENDS),
        Stage(3, 3, 2, 4, 16, 32, "relu"),
    ),
)  # fmt: skip
"""All that EfficientNet-X is made of, on small pictures."""
