"""How well tilings are ranked and tuned: the figures of docs/tune.md.

    python -m benchmarks tune tune_tiles ranking   # kernels left out of training
    python -m benchmarks tune tune_tiles replay    # held-out kernels, by recorded times
    python -m benchmarks tune tune_tiles kernels   # held-out kernels, 20 measurements
    python -m benchmarks tune tune_tiles models    # forward passes of the zoo, end to end

Needs `meshwright[iree,learned,zoo]`, and the data of `collect_tiles.py`. What has a figure
is skipped, so that an interrupted run goes on. Run it on one core (`taskset -c 1`).
"""

import json
import math
import statistics
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np

from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option
from benchmarks.train.train_tile_ranker import fit, rows_of
from benchmarks.tune.left_out import SEEDS, left_out
from benchmarks.tune.tile_kernels import HELD_OUT
from meshwright.features.tune.collect.tiles import recorded_kernel, tiling_of
from meshwright.features.tune.iree.space import TileSpace
from meshwright.features.tune.iree.tiling import Tiling
from meshwright.features.tune.layouts.journal import Journal
from meshwright.features.tune.learned.baselines import boosted_trees, random_scores
from meshwright.features.tune.learned.data_files import read_folder, read_npz
from meshwright.features.tune.learned.graph_arrays import Lesson
from meshwright.features.tune.learned.measured_graph import Collection
from meshwright.features.tune.learned.network import NetworkConfig
from meshwright.features.tune.learned.trained_model import Architecture, TrainingConfig
from meshwright.features.tune.learned.training import train
from meshwright.features.tune.tiles.features import NUM_FEATURES
from meshwright.features.tune.tiles.kernel_search import KernelSearch, TileOptions
from meshwright.features.tune.tiles.ranker import shipped_ranker
from meshwright.features.tune.tiles.tile_model import TileModel
from meshwright.features.tune.tiles.tile_problem import TileProblem
from meshwright.features.tune.tiles.tune_tiles import tune_tiles
from meshwright.learn.ranking import Ranking, noise_ceiling
from meshwright.search.engines.surrogate import Surrogate
from meshwright.search.loop.engine import Budget, search

DATA = places.DATA / "tiles"

# -- ranking -----------------------------------------------------------------------


def ranker_scores(graphs, seed):
    """The ranker of the tuner, trained on some graphs: scores of another one."""
    ranker = fit(list(map(rows_of, graphs)), seed)
    return lambda measured: ranker.predict(rows_of(measured)[0])


def tree_scores(graphs, seed):
    """LightGBM on the ranker's features: squared errors around each kernel's mean."""
    import lightgbm

    samples = list(map(rows_of, graphs))
    rows = np.concatenate([rows for rows, _ in samples])
    times = np.concatenate([times - times.mean() for _, times in samples])
    options = {"num_leaves": 15, "learning_rate": 0.05, "verbosity": -1, "seed": seed}
    options |= {"deterministic": True, "num_threads": 1, "min_data_in_leaf": 10}
    booster = lightgbm.train(options, lightgbm.Dataset(rows, times), 300)
    return lambda measured: booster.predict(rows_of(measured)[0])


def joint_scores(graphs, seed):
    """Sums of a tiling's ranks by the ranker and by LightGBM.

    Chosen among ten combinations by folds of the training kernels alone.
    """
    methods = [ranker_scores(graphs, seed), tree_scores(graphs, seed)]
    return lambda measured: sum(np.argsort(np.argsort(m(measured))) for m in methods)


def network_scores(architecture, graphs, seed, epochs=60):
    lessons = frozenset(Lesson)
    network = NetworkConfig(Collection.TILE, lessons, 32, 2)
    config = TrainingConfig(network, seed, epochs, architecture, configs_per_step=24)
    return train(graphs, config).scores


METHODS = {
    "random": lambda graphs, seed: partial(random_scores, seed=seed),
    "LightGBM": boosted_trees,
    "sage": partial(network_scores, Architecture.OURS),
    "early-join-sage": partial(network_scores, Architecture.TILE_BASELINE),
    "LightGBM, tile features": tree_scores,
    "ranker": ranker_scores,
    "ranker and LightGBM": joint_scores,
}


def rank(options):
    """Metrics of each method on kernels that it was not trained on, by seed."""
    graphs = [*read_folder(DATA / "training"), *read_folder(DATA / "held_out")]
    for name, method in METHODS.items():
        for seed in range(SEEDS):
            key = f"{name} {seed}"
            if key not in options.stored_part("ranking") and name in (
                options.names or METHODS
            ):
                start_s = time.process_time()
                figures = left_out(method, graphs, seed).to_json()
                figures["cpu_s"] = round(time.process_time() - start_s, 1)
                figures["kernels"] = len(graphs)
                options.save_case("ranking", key, figures)
    ceilings = [noise_ceiling(g.provenance.pass_ns) for g in graphs]
    floor = Ranking.mean([noise_floor(g.provenance.pass_ns) for g in graphs])
    figures = {"tau": float(np.mean(ceilings)), "floor": floor.to_json()}
    options.save_case("ranking", "noise ceiling", figures)


def noise_floor(pass_ns):
    """The mean `Ranking` of each pass by the median of the others, which noise limits."""
    passes = np.array(pass_ns, float)
    return Ranking.mean(
        [
            Ranking.of(one, np.median(np.delete(passes, number, 0), 0))
            for number, one in enumerate(passes)
        ]
    )


# -- kernels -----------------------------------------------------------------------


def tune_kernels(options):
    """Held-out kernels: what 20 measurements find, and what many random ones found."""
    for name in options.names or HELD_OUT:
        path = DATA / "held_out" / f"{name}.npz"
        if name in options.stored_part("kernels") or not path.exists():
            continue
        measured = read_npz(path)
        start_s = time.perf_counter()
        search = KernelSearch(
            recorded_kernel(measured),
            shipped_ranker(NUM_FEATURES),
            Journal(options.journals / f"{name}.jsonl"),
            "",
            TileOptions(options.budget, options.seed),
        )
        outcome = search.run()
        best_after = np.minimum.accumulate([v.cost for v in search.asked.values()])
        options.save_case(
            "kernels",
            name,
            {
                "kernel": outcome.record.name,
                "default_ms": 1e3 * outcome.record.default_s,
                "tuned_ms": 1e3 * outcome.record.tuned_s,
                "speed_up": outcome.record.speed_up,
                "spread": outcome.record.spread,
                "measured": outcome.record.measured,
                "failed": outcome.record.failed,
                "tiles": outcome.record.tiles,
                "speed_up_by_measurement": [round(1 / c, 3) for c in best_after],
                "random": measured.num_configs,
                "random_speed_up": measured.speedup(),
                "seconds": round(time.perf_counter() - start_s),
            },
        )


def replay(options):
    """The best of the tilings that were ever measured, found by the shipped ranker.

    Tilings are those of the data set and of the journals of `kernels`. Nothing is measured.
    """
    for name in options.names or HELD_OUT:
        measured = read_npz(DATA / "held_out" / f"{name}.npz")
        kernel = recorded_kernel(measured)
        costs = {
            tiling_of(kernel, row): float(cost)
            for row, cost in zip(measured.config_feat, measured.targets, strict=True)
        }
        costs |= journal_costs(options.journals / f"{name}.jsonl", kernel)
        asked = {}

        def ask(state, asked=asked, costs=costs):
            return asked.setdefault(state, 1.0 if state is None else costs[state])

        search(
            _Recorded(TileSpace.of(kernel), tuple(costs), ask),
            Surrogate(
                options.seed, TileModel(kernel, shipped_ranker(NUM_FEATURES)), jumps=0.0
            ),
            Budget(evaluations=options.budget),
        )
        best_after = np.minimum.accumulate(list(asked.values()))
        figures = {"tilings": len(costs), "best": 1 / min(costs.values())}
        figures |= {f"after_{n}": 1 / float(best_after[n - 1]) for n in (5, 10, 20)}
        options.save_case("replay", name, figures)


def journal_costs(path, kernel):
    """Times over the default's of the tilings that a journal of `kernels` has."""
    prefix, costs = f" {kernel.fingerprint} ", {}
    for key, verdict in Journal(path if path.exists() else None).verdicts.items():
        text = key.removeprefix(prefix)
        is_tiling = text.startswith("distribution") and "against" not in text
        if is_tiling and math.isfinite(verdict.cost):
            costs[Tiling.parse(text)] = verdict.cost
    return costs


class _Recorded(TileProblem):
    """A problem whose only choices are tilings with a known time."""

    def actions(self, state):
        return [tiling for tiling in self.pool if tiling != state]


# -- models ------------------------------------------------------------------------


def gpt():
    from zoo import gpt

    _, (state, batch) = gpt.tiny()
    return gpt.logits, (state.params, batch["inputs"])


def classifier(module, network):
    """Scores of a batch of images by a network in its small form."""
    from importlib import import_module

    zoo = import_module(f"zoo.{module}")
    net = getattr(zoo, network)(zoo.TINY)
    image = jax.random.normal(jax.random.key(0), (8, zoo.TINY.size, zoo.TINY.size, 3))
    return net.apply, (net.init(jax.random.key(1), image), image)


def resnet():
    from zoo import resnet

    _, (state, batch) = resnet.tiny()
    fn = partial(resnet.scores, resnet.TINY)
    fn.__name__ = "scores"
    return fn, (state.params, state.stats, batch["image"])


def ranking():
    from zoo import ranking

    _, (state, batch) = ranking.tiny()
    fn = partial(ranking.scores, ranking.TINY)
    fn.__name__ = "scores"
    return fn, (state.params, batch["features"])


MODELS = {
    "gpt": gpt,
    "vit": partial(classifier, "vit", "ViT"),
    "mixer": partial(classifier, "mixer", "Mixer"),
    "resnet": resnet,
    "ranking": ranking,
}


def tune_models(options):
    """Forward passes of whole models, before and after."""
    for name in options.names or MODELS:
        if name in options.stored_part("models"):
            continue
        fn, args = MODELS[name]()
        start_s = time.perf_counter()
        journal = options.journals / "models.jsonl"
        limits = TileOptions(options.budget, options.seed, journal=journal)
        tuned = tune_tiles(fn, args, limits)
        print(f"{name}: {tuned}", flush=True)
        figures = json.loads(tuned.to_json())
        del figures["spec"]
        seconds = round(time.perf_counter() - start_s)
        options.save_case(
            "models", name, {**figures, "speed_up": tuned.speed_up, "seconds": seconds}
        )


# -- summary ------------------------------------------------------------------------


def summarise(options):
    """Print means over what was measured."""
    kernels = options.stored_part("kernels").values()
    if kernels:
        gains = [k["speed_up"] for k in kernels]
        shares = [k["speed_up"] / k["random_speed_up"] for k in kernels]
        print(
            f"{len(gains)} kernels: median {statistics.median(gains):.2f}x; "
            f"{100 * statistics.mean(shares):.0f} % of the random search's speed-up "
            f"(median {100 * statistics.median(shares):.0f} %)"
        )
    replayed = options.stored_part("replay").values()
    if replayed:
        found = ((r["after_20"], r["after_20"] / r["best"]) for r in replayed)
        gains, shares = zip(*found, strict=True)
        print(
            f"{len(gains)} kernels replayed: median {statistics.median(gains):.2f}x, "
            f"{100 * statistics.mean(shares):.0f} % of the best recorded"
        )
    models = [m["speed_up"] for m in options.stored_part("models").values()]
    if models:
        mean = math.exp(statistics.mean(map(math.log, models)))
        print(f"{len(models)} models: {mean:.3f}x in geometric mean")


PARTS = {
    "ranking": rank,
    "replay": replay,
    "kernels": tune_kernels,
    "models": tune_models,
}


@benchmark(
    option("part", choices=[*PARTS, "summary"]),
    option("names", nargs="*"),
    option("--budget", type=int, default=20),
    option("--journals", type=Path, default=Path("out/tile_journals")),
    out=STORED,
    seed=0,
)
def main(options: Options):
    options.journals.mkdir(parents=True, exist_ok=True)
    if options.part != "summary":
        PARTS[options.part](options)
    summarise(options)


if __name__ == "__main__":
    main()
