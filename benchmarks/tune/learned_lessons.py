"""What each lesson of Kaggle's winners is worth on our own measurements.

    python -m benchmarks tune learned_lessons layout   # programs of collect_layouts.py
    python -m benchmarks tune learned_lessons tile     # kernels of collect_tiles.py
    python -m benchmarks tune learned_lessons summary  # tables in Markdown

Graphs are left out of training in folds, with three seeds; one lesson is left out at a
time. Baselines are ranked alike. What has a figure is skipped.
"""

import time
from functools import partial

import numpy as np

from benchmarks import places
from benchmarks.harness import STORED, Options, benchmark, option
from benchmarks.tune.left_out import SEEDS, left_out
from meshwright.features.tune.learned.baselines import boosted_trees, plain_scorers
from meshwright.features.tune.learned.data_files import read_folder
from meshwright.features.tune.learned.graph_arrays import Lesson
from meshwright.features.tune.learned.measured_graph import Collection
from meshwright.features.tune.learned.network import NetworkConfig
from meshwright.features.tune.learned.trained_model import Architecture, TrainingConfig
from meshwright.features.tune.learned.training import train
from meshwright.learn.ranking import kendall_tau, noise_ceiling

DATA = {
    Collection.LAYOUT: places.DATA / "layouts",
    Collection.TILE: places.DATA / "tiles",
}
WIDTH, LAYERS, EPOCHS, CONFIGS_PER_STEP, RATE = 16, 2, 20, 16, 3e-3


def network(collection, without, architecture, graphs, seed):
    """Scores by a network that was trained on some graphs, without one of the lessons."""
    lessons = frozenset(Lesson) - {without}
    config = TrainingConfig(
        NetworkConfig(collection, lessons, WIDTH, LAYERS),
        seed,
        EPOCHS,
        architecture,
        learning_rate=RATE,
        configs_per_step=CONFIGS_PER_STEP,
    )
    return train(graphs, config).scores


def methods_of(collection):
    """Functions of training graphs and a seed that return scores, by name."""

    def plain(name):
        return lambda graphs, seed: plain_scorers(collection, seed)[name]

    baseline = {
        Collection.LAYOUT: Architecture.LAYOUT_BASELINE,
        Collection.TILE: Architecture.TILE_BASELINE,
    }[collection]
    methods = {name: plain(name) for name in plain_scorers(collection, 0)}
    methods["LightGBM"] = boosted_trees
    methods["all lessons"] = partial(network, collection, None, Architecture.OURS)
    for lesson in lessons_of(collection):
        methods[f"without {lesson.value}"] = partial(
            network, collection, lesson, Architecture.OURS
        )
    methods[baseline.value] = partial(network, collection, None, baseline)
    return methods


def lessons_of(collection):
    """The lessons that change a network; a tiling has no dims to pad or nodes to prune."""
    is_tile = collection is Collection.TILE
    of_layouts = {Lesson.PADDING, Lesson.PRUNING}
    return [each for each in Lesson if not (is_tile and each in of_layouts)]


def rank(collection, options):
    graphs = read_folder(DATA[collection])
    part = collection.value
    for seed in range(SEEDS):
        for name, method in methods_of(collection).items():
            key = f"{name} {seed}"
            if key in options.stored_part(part) or name not in (
                options.methods or [name]
            ):
                continue
            start_s = time.process_time()
            figures = left_out(method, graphs, seed).to_json()
            figures["cpu_s"] = round(time.process_time() - start_s, 1)
            figures["graphs"] = len(graphs)
            options.save_case(part, key, figures)
    passes = [graph.provenance.pass_ns for graph in graphs]
    ceiling = {
        "tau": float(np.mean(list(map(noise_ceiling, passes)))),
        "tau_of_medians": float(np.mean(list(map(ceiling_of_medians, passes)))),
    }
    options.save_case(part, "noise ceiling", ceiling)


def ceiling_of_medians(pass_ns, draws=10):
    """Mean tau between the medians of two halves of the passes, which have less noise."""
    passes, random = np.array(pass_ns, float), np.random.default_rng(0)
    half, taus = len(passes) // 2, []
    for _ in range(draws):
        order = random.permutation(len(passes))
        halves = passes[order[:half]], passes[order[half : 2 * half]]
        taus.append(kendall_tau(*(np.median(each, axis=0) for each in halves)))
    return float(np.mean(taus))


def summarise(options):
    """Print means over seeds with their range, and differences seed by seed."""
    for collection in Collection:
        figures = options.stored_part(collection.value)
        print(
            f"\n{collection.value}: ranking | E_1 | E_5 | tau | tau less all lessons'"
        )
        for name in methods_of(collection):
            rows = [figures.get(f"{name} {seed}") for seed in range(SEEDS)]
            full = [figures.get(f"all lessons {seed}") for seed in range(SEEDS)]
            if all(rows) and all(full):
                print(f"| {name} | {_row(rows, full)} |")
        if "noise ceiling" in figures:
            shown = " ".join(
                f"{k} {v:.3f}" for k, v in figures["noise ceiling"].items()
            )
            print("noise ceiling:", shown)


def _row(rows, full):
    errors = [
        f"{100 * mean:.1f} % ({100 * low:.1f}-{100 * high:.1f})"
        for mean, low, high in (_extent(rows, f"top_{k}_error") for k in (1, 5))
    ]
    mean, low, high = _extent(rows, "tau")
    gaps = [row["tau"] - whole["tau"] for row, whole in zip(rows, full, strict=True)]
    return " | ".join(
        [
            *errors,
            f"{mean:.3f} ({low:.3f}-{high:.3f})",
            f"{np.mean(gaps):+.3f} ({min(gaps):+.3f} to {max(gaps):+.3f})",
        ]
    )


def _extent(rows, key):
    values = [row[key] for row in rows]
    return float(np.mean(values)), min(values), max(values)


@benchmark(
    option("part", choices=[*(c.value for c in Collection), "summary"]),
    option("methods", nargs="*"),
    out=STORED,
)
def main(options: Options):
    if options.part != "summary":
        rank(Collection(options.part), options)
    summarise(options)


if __name__ == "__main__":
    main()
