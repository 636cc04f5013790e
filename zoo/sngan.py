"""SN-GAN: a generator against a discriminator whose weights have singular values up to 1.

T. Miyato, T. Kataoka, M. Koyama, Y. Yoshida, "Spectral Normalization for Generative
Adversarial Networks", ICLR 2018, for images of a class as in T. Miyato, M. Koyama, "cGANs
with Projection Discriminator", ICLR 2018; a benchmark of TF-Replicator (Buchlovsky et
al., 2019). `cifar10` and `imagenet` are those of the authors' programs.

One step is N updates of the discriminator, each on images and fakes of its own, then one
of the generator. Noise is part of the batch, so that cutting the batch also cuts the
generator's work. Unlike in the authors' programs, singular vectors are updated once per
update instead of once per forward pass, the running means of the generator's norms follow
its own updates only, and the learning rate is constant.

Letters: B batch, S height and width, K classes, Z numbers of noise, N updates of the
discriminator, F fakes per image for the generator, M images of a class, P pixels.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import meshwright as mw
from zoo.diffusion import write_grid
from zoo.images import draw, made_batches
from zoo.sliced import sliced_distance
from zoo.sngan_networks import Config, Discriminator, Generator
from zoo.spectral import first_vectors, normalise
from zoo.training import ALONE, Replicas, State
from zoo.workload import Curve, Workload, sized

FAKES = 2
"""F, as in the authors' program: the generator learns from more fakes than its judge."""


SIZES = {
    "cifar10": Config(32, 10, 4 * (256,), 4 * (128,), halvings=2, batch=64),
    "imagenet": Config(
        128, 1000, (1024, 1024, 512, 256, 128, 64), (64, 128, 256, 512, 1024, 1024),
        halvings=5, batch=64,
    ),
}  # fmt: skip
TINY = Config(
    16, 8, (32, 32, 32), (32, 32, 32), 2, batch=16, noise=16, updates=2, rate=1e-3
)


class Both(NamedTuple):
    """A value for each network: parameters, Adam's state, or other state.

    Other state is the running means of the generator's norms, and the discriminator's
    singular vectors.
    """

    generator: Any
    discriminator: Any


class Losses(NamedTuple):
    """The generator's, and the mean of the discriminator's over its updates."""

    generator: Array
    discriminator: Array


# -- what the networks do ----------------------------------------------------------


def make(
    config: Config, replicas: Replicas, params: dict, means: dict, *of: Array
) -> tuple[Array, dict]:
    """Fakes [B, S, S, 3] of noise and labels, normed by their own statistics.

    And the running means after them.
    """
    variables = {"params": params, "batch_stats": means}
    net = Generator(config, True, replicas.axis)
    images, changed = net.apply(variables, *of, mutable=["batch_stats"])
    return images, changed["batch_stats"]


def sample(config: Config, state: State, noise: Array, label: Array) -> Array:
    """Images [B, S, S, 3], normed by running means: none depends on the others."""
    params, means = state.params.generator, state.stats.generator
    variables, net = {"params": params, "batch_stats": means}, Generator(config, False)
    return net.apply(variables, noise, label)


def score(config: Config, params: dict, images: Array, label: Array) -> Array:
    """How real [B] the discriminator takes images of classes [B] for."""
    return Discriminator(config).apply({"params": params}, images, label)


# -- training ----------------------------------------------------------------------


def hinge(real: Array, fake: Array) -> Array:
    """Mean loss of scores: 0 once all images are above 1 and all fakes below -1."""
    return jnp.mean(nn.relu(1 - real)) + jnp.mean(nn.relu(1 + fake))


def start(config: Config, key: Array) -> State:
    """Networks and singular vectors drawn from `key`, Adam at rest for each network."""
    keys = jax.random.split(key, 3)
    noise, label = jnp.zeros((1, config.noise)), jnp.zeros(1, jnp.int32)
    image = jnp.zeros((1, config.size, config.size, 3))
    made = Generator(config, is_training=True).init(keys[0], noise, label)
    judge = Discriminator(config).init(keys[1], image, label)
    params = Both(made["params"], judge["params"])
    rest = Both(*(_optimizer(config).init(part) for part in params))
    vectors = first_vectors(params.discriminator, keys[2])
    return State(params, rest, Both(made["batch_stats"], vectors))


def _optimizer(config: Config) -> optax.GradientTransformation:
    return optax.adam(config.rate, b1=0.0, b2=0.9)


def _updated(
    optimizer: optax.GradientTransformation, state: State, gradients: dict, name: str
) -> State:
    """The state after one step of the optimizer for the network called `name`."""
    old, rest = getattr(state.params, name), getattr(state.optimizer, name)
    changes, rest = optimizer.update(gradients, rest)
    new = optax.apply_updates(old, changes)
    params = state.params._replace(**{name: new})
    return State(params, state.optimizer._replace(**{name: rest}), state.stats)


def teach_discriminator(
    config: Config,
    state: State,
    batch: dict[str, Array],
    replicas: Replicas = ALONE,
) -> tuple[State, Array]:
    """The state after one update of the discriminator, and its loss before."""
    label = batch["fake_label"]
    generator, means = state.params.generator, state.stats.generator
    fakes, _ = make(config, replicas, generator, means, batch["noise"], label)

    def loss(params: dict) -> tuple[Array, dict]:
        weights, vectors = normalise(params, state.stats.discriminator)
        real = score(config, weights, batch["image"], batch["label"])
        return hinge(real, score(config, weights, fakes, label)), vectors

    gradient = jax.value_and_grad(loss, has_aux=True)
    (value, vectors), gradients = gradient(state.params.discriminator)
    optimizer = replicas.wrap_optimizer(_optimizer(config))
    state = _updated(optimizer, state, gradients, "discriminator")
    return state._replace(stats=state.stats._replace(discriminator=vectors)), value


def teach_generator(
    config: Config,
    state: State,
    batch: dict[str, Array],
    replicas: Replicas = ALONE,
) -> tuple[State, Array]:
    """The state after one update of the generator, and its loss before."""
    weights, vectors = normalise(state.params.discriminator, state.stats.discriminator)
    means, label = state.stats.generator, batch["fake_label"]

    def loss(params: dict) -> tuple[Array, dict]:
        fakes, after = make(config, replicas, params, means, batch["noise"], label)
        return -jnp.mean(score(config, weights, fakes, label)), after

    gradient = jax.value_and_grad(loss, has_aux=True)
    (value, after), gradients = gradient(state.params.generator)
    optimizer = replicas.wrap_optimizer(_optimizer(config))
    state = _updated(optimizer, state, gradients, "generator")
    return state._replace(stats=Both(after, vectors)), value


def train_step_of(
    config: Config, replicas: Replicas = ALONE
) -> Callable[[State, dict], tuple[State, Losses]]:
    """`step(state, batch)`: the state after N + 1 updates, and their losses."""
    n = config.updates

    def train_step(state: State, batch: dict[str, Array]) -> tuple[State, Losses]:
        each = {name: jnp.moveaxis(x[:, :n], 1, 0) for name, x in batch.items()}
        update = partial(teach_discriminator, config, replicas=replicas)
        # unrolled: convolutions in a loop are several times slower on XLA:CPU
        state, losses = jax.lax.scan(update, state, each, unroll=n)
        last = {name: batch[name][:, n:] for name in ("noise", "fake_label")}
        last = {name: x.reshape(-1, *x.shape[2:]) for name, x in last.items()}
        state, loss = teach_generator(config, state, last, replicas)
        return state, Losses(loss, jnp.mean(losses))

    return train_step


def batches(config: Config, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Made images [B, N, S, S, 3], noise [B, N + F, Z], and the classes of both."""
    shape = (config.batch, config.updates)
    longer = (config.batch, config.updates + FAKES)
    rng = np.random.default_rng((seed, 1))  # another stream than that of the images
    for batch in made_batches(shape[0] * shape[1], config.size, config.classes, seed):
        pieces = {name: x.reshape(*shape, *x.shape[1:]) for name, x in batch.items()}
        noise = rng.standard_normal((*longer, config.noise), np.float32)
        label = rng.integers(0, config.classes, longer, np.int32)
        yield pieces | {"noise": noise, "fake_label": label}


def compare(config: Config, state: State, real: Array, noise: Array) -> Array:
    """Distance of samples from noise [K, M, Z] to real images [K, M, P]."""
    label = jnp.repeat(jnp.arange(config.classes), noise.shape[1])
    made = sample(config, state, noise.reshape(-1, config.noise), label)
    return sliced_distance(made.reshape(real.shape), real)


def unseen(config: Config, count: int, seed: int) -> np.ndarray:
    """`count` made images [K, count, P] of each class, beside those of `batches`."""
    label = np.repeat(np.arange(config.classes), count)
    images = draw(label, config.size, np.random.default_rng((seed, 2)))
    return images.reshape(config.classes, count, -1)


def learn(config: Config, seed: int, steps: int) -> Iterator[tuple[State, Losses]]:
    """The state after each of `steps` steps, and the losses before it."""
    state = jax.jit(partial(start, config))(jax.random.key(seed))
    step = jax.jit(train_step_of(config))
    for _, batch in zip(range(steps), batches(config, seed), strict=False):
        state, losses = step(state, batch)
        yield state, losses


def train(seed: int, steps: int) -> Curve:
    """Losses, and the distance of 32 samples of each class to 32 unseen images."""
    shape = (TINY.classes, 32, TINY.noise)
    noise, real = jax.random.normal(jax.random.key(seed), shape), unseen(TINY, 32, seed)
    measure = jax.jit(partial(compare, TINY))
    for state, losses in learn(TINY, seed, steps):
        yield {
            "distance": float(measure(state, real, noise)),
            "loss": float(losses.discriminator),
            "generator_loss": float(losses.generator),
        }


def write_samples(path: Path, seed: int, steps: int) -> None:
    """Train the small networks, and draw 4 samples of each class above 4 images."""
    *_, (state, _) = learn(TINY, seed, steps)
    label = np.repeat(np.arange(TINY.classes), 4)
    noise = jax.random.normal(jax.random.key(seed), (len(label), TINY.noise))
    images = jax.jit(partial(sample, TINY))(state, noise, label)
    real = unseen(TINY, 4, seed).reshape(images.shape)
    write_grid(path, np.concatenate([images, real]), columns=16, zoom=4)


# -- targets and schedules ---------------------------------------------------------


def _train_target(config: Config) -> tuple[Any, tuple[Any, ...]]:
    images = (config.batch, config.updates)
    fakes = (config.batch, config.updates + FAKES)
    size = (config.size, config.size, 3)
    batch = {
        "image": jax.ShapeDtypeStruct(images + size, jnp.float32),
        "label": jax.ShapeDtypeStruct(images, jnp.int32),
        "noise": jax.ShapeDtypeStruct((*fakes, config.noise), jnp.float32),
        "fake_label": jax.ShapeDtypeStruct(fakes, jnp.int32),
    }
    state = jax.eval_shape(partial(start, config), jax.random.key(0))
    return train_step_of(config), (state, batch)


def tiny():
    """Networks of 32 channels for 16 x 16 made images of 8 classes, as arrays."""
    state = jax.jit(partial(start, TINY))(jax.random.key(0))
    return train_step_of(TINY), (state, next(batches(TINY, seed=0)))


def tiny_forward():
    """One image of a class, by running means."""
    _, (state, batch) = tiny()

    def forward(params: dict, stats: dict, noise: Array, label: Array) -> Array:
        parts = {"params": params, "batch_stats": stats}
        return Generator(TINY, is_training=False).apply(parts, noise, label)

    noise, label = batch["noise"][:1, 0], batch["fake_label"][:1, 0]
    return forward, (state.params.generator, state.stats.generator, noise, label)


inference = {"tiny": tiny_forward}

targets = sized(_train_target, SIZES)

DP = mw.data_parallel("data", "batch.*")
MP = mw.shard(
    {"state.params.**.conv_1.kernel": 3, "state.params.**.conv_2.kernel": 2},
    axis="model",
)

Z3 = mw.zero(3, "data", params="state.params.**", state="state.optimizer.**")
"""Named, for cut like parameters a singular vector would want its weight gathered."""

schedules = {
    "dp": [DP],
    "fsdp": [DP, Z3],
    "dp+mp": [DP, MP],
    "dp+mp+z3": [DP, MP, Z3],
}
"""TF-Replicator's is `dp`. MP cuts what a block's two convolutions hand on."""

workload = Workload(
    name="sngan",
    title="SN-GAN with a projection discriminator",
    paper="Miyato et al., Spectral Normalization for GANs, ICLR 2018",
    tiny=tiny,
    full=tuple(targets.values()),
    train=train,
    steps=200,
    schedules=schedules,
    best="dp+mp",
    metric="distance",
)
