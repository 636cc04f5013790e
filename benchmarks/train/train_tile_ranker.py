"""Trains the ranker of tilings that ships with the package, and says how well it ranks.

    python -m benchmarks train train_tile_ranker [--folds 5 --seeds 3]

Reads `data/tiles/training`, which `collect_tiles.py` wrote; needs jax and optax.
"""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import places
from benchmarks.harness import Options, benchmark, option
from meshwright.features.tune.collect.tiles import recorded_kernel, tiling_of
from meshwright.features.tune.learned.data_files import read_folder
from meshwright.features.tune.tiles.features import tile_rows
from meshwright.features.tune.tiles.ranker import Ranker
from meshwright.learn.ranking import Ranking

DATA = places.DATA / "tiles" / "training"
SHIPPED = Path("src/meshwright/features/tune/tiles/ranker.npz")
WIDTH, STEPS, MEMBERS = 48, 800, 8
KERNELS, TILINGS = 8, 24  # of one step
NOISE = 0.1  # deviation of what is added to standardised features: E_5 3.2 % -> 2.8 %


def rows_of(measured):
    """Features [c, f] of a measured kernel, and logarithms of its times [c]."""
    kernel = recorded_kernel(measured)
    tilings = [tiling_of(kernel, row) for row in measured.config_feat]
    return tile_rows(kernel, tilings), np.log(measured.targets)


def loss_fn(params, rows, times):
    """Squared errors of times around each kernel's mean, and pairs in the wrong order.

    rows: [k, c, f]. times: [k, c].
    """
    hidden = rows
    for number, (weights, bias) in enumerate(params):
        hidden = hidden @ weights + bias
        if number + 1 < len(params):
            hidden = jnp.maximum(hidden, 0.1 * hidden)
    guess = hidden[..., 0]
    error = (guess - guess.mean(1, keepdims=True)) - (
        times - times.mean(1, keepdims=True)
    )
    fast = 1 / (1 + jnp.exp(3 * (times - times.min(1, keepdims=True)) - 2))
    slower = times[:, :, None] - times[:, None, :]
    gap = guess[:, :, None] - guess[:, None, :]
    pairs = jnp.maximum(0, jnp.minimum(slower, 0.5) - gap) * (slower > 0.03)
    pairs = pairs * fast[:, None, :]
    return jnp.mean(error**2 * (0.2 + fast)) + pairs.mean()


def init(key, features):
    shapes = [(features, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)]
    keys = jax.random.split(key, len(shapes))
    return [
        (jax.random.normal(k, s) * (1.5 / s[0]) ** 0.5, jnp.zeros((1, s[1])))
        for k, s in zip(keys, shapes, strict=True)
    ]


def fit(samples, seed):
    """A ranker of measured kernels, given as features and times."""
    every = np.concatenate([rows for rows, _ in samples])
    deviation = every.std(0)
    scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0)
    scaling = Ranker(every.mean(0), scale, ())
    rows = padded([scaling.standardised(rows) for rows, _ in samples])
    times = padded([times for _, times in samples])
    draw = np.random.default_rng(seed)
    kernels = draw.integers(0, len(samples), (STEPS, MEMBERS, KERNELS))
    counts = np.array([len(times) for _, times in samples])[kernels]
    picks = (draw.random((*kernels.shape, TILINGS)) * counts[..., None]).astype(int)
    first, second = jax.random.split(jax.random.key(seed))
    params = jax.vmap(partial(init, features=every.shape[1]))(
        jax.random.split(first, MEMBERS)
    )
    steps = kernels, picks, jax.random.split(second, (STEPS, MEMBERS))
    layers = tuple(
        (np.asarray(weights, float), np.asarray(bias, float))
        for weights, bias in descend(params, (rows, times), steps)
    )
    return Ranker(scaling.mean, scaling.scale, layers)


def padded(arrays):
    """Arrays of several lengths as one [k, c, ...], with zeros at the ends."""
    whole = np.zeros((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]))
    for place, array in enumerate(arrays):
        whole[place, : len(array)] = array
    return whole.astype(np.float32)


@jax.jit
def descend(params, data, steps):
    """Parameters [members, ...] after all steps, each on some tilings of some kernels."""
    rate = optax.cosine_decay_schedule(3e-3, STEPS)
    optimizer = optax.adamw(rate, weight_decay=1e-2)

    def update(params, state, kernels, picks, key):
        rows, times = (array[kernels[:, None], picks] for array in data)
        rows = rows + NOISE * jax.random.normal(key, rows.shape)
        grads = jax.grad(loss_fn)(params, rows, times)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    def step(carry, drawn):
        return jax.vmap(update)(*carry, *drawn), None

    start = params, jax.vmap(optimizer.init)(params)
    return jax.lax.scan(step, start, steps)[0][0]


def leave_out(samples, folds, seed):
    """Rankings of kernels by rankers that were trained without their fold."""
    fold = np.random.default_rng(seed).permutation(len(samples)) % folds
    rankings = [None] * len(samples)
    for number in range(folds):
        ranker = fit(
            [s for s, f in zip(samples, fold, strict=True) if f != number], seed
        )
        for place in np.flatnonzero(fold == number):
            rows, times = samples[place]
            rankings[place] = Ranking.of(ranker.predict(rows), np.exp(times))
    return rankings


@benchmark(
    option("--data", type=Path, default=DATA),
    option("--folds", type=int, default=5),
    option("--seeds", type=int, default=3),
    out=SHIPPED,
)
def main(options: Options):
    graphs = read_folder(options.data)
    samples = list(map(rows_of, graphs))
    for seed in range(options.seeds):
        rankings = leave_out(samples, options.folds, seed)
        print(f"seed {seed}: {Ranking.mean(rankings)}", flush=True)
        for graph, ranking in zip(graphs, rankings, strict=True):
            print(f"  {graph.name:26} {ranking}")
    fit(samples, 0).save(options.out)
    print(f"wrote {options.out}, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
