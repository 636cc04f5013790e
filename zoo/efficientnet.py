"""EfficientNet and EfficientNet-X, B0 to B7: image classifiers scaled in three ways.

M. Tan, Q. V. Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
Networks", ICML 2019: a small net found by search, and its depth, width and image size
scaled together. S. Li, M. Tan et al., "Searching for Fast Model Families on Datacenter
Accelerators", CVPR 2021: the same for what accelerators do well, space to depth and
fused convolutions, and a scaling that asks for latency too; `x_b0` to `x_b7` scale as
EfficientNet does, `x_tpu_b1` and `x_gpu_b1` to `b7` as that paper's search found; their
B0 is `x_b0`.

Training is the first paper's: RMSProp, batch norm, dropout, stochastic depth, weight
decay. Not in the papers and taken from the released code: what a block's squeeze counts
from, where space to depth begins and ends, epsilon 1e-3 and a first moment of 1 in
RMSProp. Not here: AutoAugment, label smoothing, a slow start and averaged weights.

Batch norm is over the whole batch, however many devices hold it.

Letters: B batch, S height and width, C channels, K classes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import meshwright as mw
from zoo.attention import ACTIVATIONS
from zoo.count import macs
from zoo.efficientnet_sizes import SIZES, TINY, Config
from zoo.images import made_batches
from zoo.layers import cross_entropy
from zoo.mbconv import Blocks, Normalized, scale_channels
from zoo.training import State, TrainStep
from zoo.workload import Curve, Published, Target, Workload, num_parameters, sized

# -- the net -----------------------------------------------------------------------

_DENSE_INIT = nn.initializers.variance_scaling(1 / 3, "fan_out", "uniform")


class EfficientNet(nn.Module):
    """Scores of the classes of images."""

    config: Config

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        """Scores [B, K] of images x [B, S, S, 3]."""
        config = self.config
        activation = ACTIVATIONS[config.activation]
        conv = partial(Normalized, momentum=config.momentum)
        scaled = (config.width, config.depth, config.squeeze)
        stages = [stage.blocks(*scaled) for stage in config.stages]
        lengths = [len(blocks) for blocks in stages]
        total, starts = sum(lengths), np.cumsum([0, *lengths])

        stem = scale_channels(config.stem, config.width)
        x = activation(conv(stem, 3, 2, name="stem")(x, train))
        for i, blocks in enumerate(stages):
            place = np.arange(starts[i], starts[i + 1], dtype=np.float32)
            survival = 1 - (1 - config.survival) * place / total
            is_split = config.stages[i].space_to_batch
            stage = Blocks(blocks, config.momentum, is_split, name=f"stage_{i}")
            x = stage(x, survival, train)
        head = scale_channels(config.head, config.width)
        x = activation(conv(head, 1, name="head")(x, train))

        x = nn.Dropout(config.dropout, deterministic=not train)(x.mean(axis=(1, 2)))
        return nn.Dense(config.classes, kernel_init=_DENSE_INIT, name="classes")(x)


def classify(config: Config, state: State, images: Array) -> Array:
    """Scores [B, K] of images [B, S, S, 3], normalised by the running statistics."""
    variables = {"params": state.params, "batch_stats": state.stats}
    return EfficientNet(config).apply(variables, images, train=False)


# -- training ----------------------------------------------------------------------


def _are_kernels(params: dict) -> dict:
    """What weight decay is for: true at kernels, false at biases and norms."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: path[-1].key == "kernel", params
    )


def optimizer_of(config: Config) -> optax.GradientTransformation:
    """RMSProp with decay .9 and momentum .9, its rate falling, with weight decay."""
    rate = optax.exponential_decay(config.rate, config.decay_steps, 0.97)
    return optax.chain(
        optax.add_decayed_weights(1e-5, _are_kernels),
        optax.rmsprop(rate, decay=0.9, eps=1e-3, initial_scale=1.0, momentum=0.9),
    )


def start(config: Config, key: Array) -> State:
    """Parameters drawn from `key`, RMSProp at rest, statistics of no image."""
    image = jnp.zeros((1, config.size, config.size, 3))
    variables = EfficientNet(config).init(key, image, train=False)
    params = variables["params"]
    return State(params, optimizer_of(config).init(params), variables["batch_stats"])


@cache
def start_shapes(config: Config) -> State:
    """The shapes of `start`, which need no memory."""
    return jax.eval_shape(partial(start, config), jax.random.key(0))


def train_step_for(config: Config) -> TrainStep:
    """`step(state, batch)`: the batch has "image", "label" and "key", for dropout."""
    optimizer = optimizer_of(config)

    def loss(params: dict, stats: dict, batch: dict[str, Array]) -> tuple[Array, dict]:
        scores, told = EfficientNet(config).apply(
            {"params": params, "batch_stats": stats},
            batch["image"],
            train=True,
            rngs={"dropout": batch["key"]},
            mutable=["batch_stats"],
        )
        return cross_entropy(scores, batch["label"]), told["batch_stats"]

    def step(state: State, batch: dict[str, Array]) -> tuple[State, Array]:
        gradients_fn = jax.value_and_grad(loss, has_aux=True)
        (value, stats), gradients = gradients_fn(state.params, state.stats, batch)
        updates, rest = optimizer.update(gradients, state.optimizer, state.params)
        return State(optax.apply_updates(state.params, updates), rest, stats), value

    return step


def with_keys(batches: Iterable[dict], seed: int) -> Iterator[dict[str, Any]]:
    """Batches of `zoo.images`, each with a key of its own."""
    key = jax.random.key(seed)
    for i, batch in enumerate(batches):
        yield {**batch, "key": jax.random.fold_in(key, i)}


def train(seed: int, steps: int) -> Curve:
    """The loss of each step, and the share of 256 other images classified wrongly."""
    made = partial(made_batches, size=TINY.size, classes=TINY.classes)
    others = next(made(256, seed=seed + 1_000_000))
    state = jax.jit(partial(start, TINY))(jax.random.key(seed))
    step, scores_fn = jax.jit(train_step_for(TINY)), jax.jit(partial(classify, TINY))
    batches = with_keys(made(TINY.batch, seed=seed), seed)
    for _, batch in zip(range(steps), batches, strict=False):
        state, loss = step(state, batch)
        found = scores_fn(state, others["image"]).argmax(axis=-1)
        yield {"loss": float(loss), "error": float(np.mean(found != others["label"]))}


# -- targets and schedules ---------------------------------------------------------


def _image_shapes(config: Config, batch: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((batch, config.size, config.size, 3), jnp.float32)


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    batch = {
        "image": _image_shapes(config, config.batch),
        "label": jax.ShapeDtypeStruct((config.batch,), jnp.int32),
        "key": jax.eval_shape(jax.random.key, 0),
    }
    return train_step_for(config), (start_shapes(config), batch)


def tiny():
    """Six blocks on made pictures of 32 pixels, as arrays."""
    state = jax.jit(partial(start, TINY))(jax.random.key(0))
    made = made_batches(TINY.batch, TINY.size, TINY.classes, seed=0)
    return train_step_for(TINY), (state, next(with_keys(made, seed=0)))


def tiny_forward():
    """The scores of one made image, by running means."""
    _, (state, batch) = tiny()

    def forward(params: dict, stats: dict, image: Array) -> Array:
        return classify(TINY, State(params, (), stats), image)

    return forward, (state.params, state.stats, batch["image"][:1])


def serving_target(config: Config) -> Target:
    """A target of the scores of a batch of images, from weights of `dtype`."""

    def build(dtype: str = "bfloat16", **changes: Any) -> tuple[Any, tuple[Any, ...]]:
        changed = replace(config, **changes)

        def forward(params: dict, stats: dict, images: Array) -> Array:
            return classify(changed, State(params, (), stats), images)

        state, images = start_shapes(changed), _image_shapes(changed, changed.batch)
        args = (state.params, state.stats, images)
        return forward, jax.tree.map(lambda x: x.update(dtype=jnp.dtype(dtype)), args)

    return build


inference = {
    "tiny": tiny_forward,
    **{name: serving_target(config) for name, config in SIZES.items()},
}
"""Forward passes by size: `inference["b0"](batch=128, dtype="float16")`, for one."""

targets = sized(_train_target, SIZES)

_DATA = ("batch.image", "batch.label")

DP = mw.data_parallel("data", _DATA)
DP2 = [DP, mw.data_parallel("model", _DATA)]
Z2 = mw.zero(
    2, "data", params="state.params.**.kernel", state="state.optimizer.**.kernel"
)
MP = mw.shard(
    {
        "state.params.**.first.expand.conv.kernel": 3,
        "state.params.**.rest.expand.conv.kernel": 4,
    },
    axis="model",
)

schedules = {
    "dp": [DP],
    "fsdp": [DP, mw.fsdp("data")],
    "dp2": DP2,
    "dp2+z2": [*DP2, Z2],
    "dp+rows": [DP, mw.shard({"batch.image": 1}, axis="model")],
    "dp+mp": [DP, MP],
    "dp+mp+z3": [DP, MP, mw.zero(3, "data")],
}
"""Weights are few and images many: both axes cut the batch (`dp2`) as long as it lasts,
and the optimizer state of kernels is cut as in Xu et al., "Automatic Cross-Replica
Sharding of Weight Update in Data-Parallel Training", 2020. Beyond that come rows of the
image, whose borders are exchanged, or the inner channels of blocks."""


def num_macs(config: Config) -> int:
    """Multiply-adds for one image."""
    images = _image_shapes(config, batch=1)
    return macs(partial(classify, config), start_shapes(config), images)


def num_weights(config: Config) -> int:
    """Parameters, without the running statistics of batch norm."""
    return num_parameters(start_shapes(config).params)


_TAN = "Tan and Le, 2019, table 2"
_LI = "derived: counted by hand from the released code of Li et al., 2021"

_COUNTS = {
    "b0": (5.3, 0.39, _TAN),
    "b1": (7.8, 0.70, _TAN),
    "b2": (9.2, 1.0, _TAN),
    "b3": (12, 1.8, _TAN),
    "b4": (19, 4.2, _TAN),
    "b5": (30, 9.9, _TAN),
    "b6": (43, 19, _TAN),
    "b7": (66, 37, _TAN),
    "x_b0": (7.58, 0.920, _LI),
    "x_b1": (9.57, 1.606, _LI),
    "x_b2": (9.97, 2.307, _LI),
    "x_b3": (13.29, 4.334, _LI),
    "x_b4": (21.14, 10.52, _LI),
    "x_b5": (33.43, 24.56, _LI),
    "x_b6": (47.65, 47.48, _LI),
    "x_b7": (73.16, 91.79, _LI),
}
"""Millions of parameters and thousands of millions of multiply-adds, and whence."""


def _published(name: str) -> tuple[Published, Published]:
    title = f"EfficientNet-{name.upper().replace('_', '-')}"
    millions, giga, source = _COUNTS[name]
    parameters = partial(num_weights, SIZES[name])
    multiplied = partial(num_macs, SIZES[name])
    return (
        Published(title, "parameters", millions * 1e6, parameters, source),
        Published(title, "MACs", giga * 1e9, multiplied, source, within=0.05),
    )


workload = Workload(
    name="efficientnet",
    title="EfficientNet, EfficientNet-X",
    paper="Tan and Le, EfficientNet, ICML 2019; Li et al., Searching for Fast Model "
    "Families on Datacenter Accelerators, CVPR 2021",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=60,
    schedules=schedules,
    best="dp2+z2",
    batch=_DATA,
    published=tuple(entry for name in _COUNTS for entry in _published(name)),
)
