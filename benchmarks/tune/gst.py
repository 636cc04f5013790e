"""Graph segment training against training on whole graphs: memory, time and tau.

    python -m benchmarks tune gst                       # memory and time at 100,000 nodes
    python -m benchmarks tune gst --nodes 1000 --graphs 64 --epochs 15 --width 16 \
        --segment-nodes 125 --trained 2 --rate 3e-3 --held-out 24 --held-out-configs 32 \
        --curve --seeds 3                          # tau after convergence

Programs are synthetic, as no real one of this size is at hand: a random graph of matrix
products, reshapes and elementwise instructions, whose time is the sum of what each chosen
layout costs at its node and of the copies between nodes that disagree. Each way trains in a
process of its own. CPU time is counted, since wall time depends on the host's other work.
Each seed has programs of its own, the same for both ways. Figures are kept in
`results/gst.json`, by number of nodes and epochs; what has a figure is skipped.
"""

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from benchmarks.harness import STORED, Options, benchmark, option
from meshwright.features.tune.learned.features import layout_features
from meshwright.features.tune.learned.graph_arrays import Lesson
from meshwright.features.tune.learned.hlo.opcodes import OPCODES
from meshwright.features.tune.learned.hlo_graph import HloGraph
from meshwright.features.tune.learned.measured_graph import (
    Collection,
    MeasuredGraph,
    Provenance,
)
from meshwright.features.tune.learned.network import NetworkConfig
from meshwright.features.tune.learned.trained_model import TrainedModel, TrainingConfig
from meshwright.features.tune.learned.training import train
from meshwright.learn.ranking import kendall_tau
from meshwright.learn.segments import SegmentOptions

_KINDS = ("dot", "reshape", "add", "multiply", "tanh", "broadcast", "convert", "reduce")
_LAYOUTS = ((1, 0), (0, 1))
_CONFIGURABLE = 0.05


def synthetic_graph(nodes: int, configs: int, seed: int) -> MeasuredGraph:
    """A program of so many nodes with random layouts, and the time of each choice."""
    random = np.random.default_rng(seed)
    kinds = random.integers(2, len(_KINDS), nodes)
    chosen = np.sort(random.choice(nodes, max(2, int(nodes * _CONFIGURABLE)), False))
    kinds[chosen] = random.integers(0, 2, len(chosen))
    opcodes = np.array([OPCODES[_KINDS[kind]] for kind in kinds], np.uint8)
    sizes = 2.0 ** random.integers(5, 11, (nodes, 2))
    features = np.zeros((nodes, 140), np.float32)
    features[:, 21:23], features[:, 28] = sizes, sizes.prod(axis=1)
    features[:, 27], features[:, 13], features[:, 134] = sizes.sum(axis=1), 1, 1
    reach = np.minimum(np.arange(1, nodes), 30)
    operands = np.arange(1, nodes) - 1 - (random.random(nodes - 1) * reach).astype(int)
    edges = np.stack([np.arange(1, nodes), operands], axis=1)
    graph = HloGraph(features, opcodes, edges, np.array([0, nodes]))
    # A configuration makes each bad choice with a probability of its own.
    is_bad = random.random((configs, len(chosen))) < random.random((configs, 1))
    prefers = (sizes[chosen, 0] > sizes[chosen, 1]) ^ (kinds[chosen] == 1)
    picks = is_bad ^ prefers
    rows = np.stack([layout_features([layout] * 3) for layout in _LAYOUTS])
    work = np.sqrt(sizes[chosen].prod(axis=1))
    place = {int(node): i for i, node in enumerate(chosen)}
    between = [(place[u], place[v]) for u, v in edges if u in place and v in place]
    users, makers = np.array(between or [(0, 0)]).T
    copies = ((picks[:, users] != picks[:, makers]) * work[makers]).sum(axis=1)
    times = 1e6 + 100 * (is_bad * work).sum(axis=1) + 100 * copies
    return MeasuredGraph(
        f"synthetic-{seed}",
        graph,
        rows[picks.astype(int)],
        chosen,
        times.astype(np.int64),
        provenance=Provenance("synthetic"),
    )


def programs(options: Options) -> tuple[list[MeasuredGraph], ...]:
    """Programs to train on, and programs that are held out."""
    first = 1000 * options.seed
    trained = range(first, first + options.graphs)
    held_out = range(trained.stop, trained.stop + options.held_out)
    return (
        [synthetic_graph(options.nodes, options.configs, each) for each in trained],
        [
            synthetic_graph(options.nodes, options.held_out_configs, each)
            for each in held_out
        ],
    )


def run(options: Options) -> dict[str, Any]:
    """Figures of one way to train, in this process."""
    graphs, held_out = programs(options)
    before_bytes = peak_bytes()
    lessons = frozenset(Lesson) - {Lesson.PRUNING}
    network = NetworkConfig(Collection.LAYOUT, lessons, options.width, options.layers)
    segments = None
    epochs = options.epochs
    if options.way == "segments":
        epochs *= options.more_epochs
        segments = SegmentOptions(options.segment_nodes, options.trained, head_epochs=2)
    config = TrainingConfig(
        network,
        options.seed,
        epochs,
        learning_rate=options.rate,
        configs_per_step=options.configs,
        segments=segments,
    )
    ends_s: list[float] = []
    model = train(
        graphs,
        config,
        valid=held_out if options.curve else (),
        on_epoch=lambda point: ends_s.append(time.process_time()),
    )
    train_bytes = peak_bytes()
    body = np.diff(ends_s)[: epochs - 3]  # without compiling, and without the head's
    opas = [point.valid_score for point in model.curve]
    taus = taus_of(model, held_out, options.configs)
    return {
        "peak_gib": train_bytes / 2**30,
        "data_gib": before_bytes / 2**30,
        "epoch_cpu_s": float(np.median(body)),
        "train_cpu_s": ends_s[-1],
        "epochs": epochs,
        "loss": model.curve[-1].loss,
        "tau": float(np.mean(taus)),
        "tau_trained": float(np.mean(taus_of(model, graphs, options.configs))),
        "taus": taus,
        "curve": [2 * opa - 1 for opa in opas if not math.isnan(opa)],
    }


def taus_of(
    model: TrainedModel, graphs: Sequence[MeasuredGraph], batch: int
) -> list[float]:
    """The tau of each graph between its times and a model's scores."""
    return [kendall_tau(model.scores(g, batch=batch), g.targets) for g in graphs]


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@benchmark(
    option("--nodes", type=int, default=100_000),
    option("--graphs", type=int, default=3),
    option("--configs", type=int, default=16),
    option("--epochs", type=int, default=20),
    option("--more-epochs", type=int, default=4),
    option("--width", type=int, default=32),
    option("--layers", type=int, default=2),
    option("--segment-nodes", type=int, default=2000),
    option("--trained", type=int, default=4),
    option("--rate", type=float, default=1e-3),
    option("--held-out", type=int, default=3),
    option("--held-out-configs", type=int, default=64),
    option("--curve", action="store_true", help="rank held-out, too, in between"),
    option("--seeds", type=int, default=1),
    option("--way", choices=("both", "whole", "segments"), default="both"),
    out=STORED,
    seed=0,
)
def main(options: Options) -> None:
    if options.way != "both":
        print(json.dumps(run(options)))
        return
    part = f"{options.nodes} nodes, {options.epochs} epochs"
    shown = {name: value for name, value in options.own().items() if name != "way"}
    for seed, way in product(range(options.seeds), ("segments", "whole")):
        key = f"{way} {seed}"
        if key in options.stored_part(part):
            continue
        command = [sys.executable, "-m", "benchmarks.tune.gst", *sys.argv[1:]]
        command += ["--way", way, "--seed", str(seed)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        options.save_case(part, key, {**json.loads(done.stdout), "options": shown})


if __name__ == "__main__":
    main()
