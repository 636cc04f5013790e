"""Small graphs with a known best ranking, for tests."""

import numpy as np

from meshwright.features.tune.learned.features import layout_features, tile_features
from meshwright.features.tune.learned.hlo.opcodes import OPCODES
from meshwright.features.tune.learned.hlo_graph import HloGraph
from meshwright.features.tune.learned.measured_graph import MeasuredGraph, Provenance


def chain(num_nodes, kinds=("dot", "add"), seed=0):
    """A chain in which node i reads node i - 1, with random sizes."""
    random = np.random.default_rng(seed)
    features = np.zeros((num_nodes, 140), np.float32)
    features[:, 21:23] = random.integers(1, 200, (num_nodes, 2))
    features[:, 28] = features[:, 21:23].prod(axis=1)
    features[:, 134:136] = (1, 0)
    opcodes = [OPCODES[kinds[i % len(kinds)]] for i in range(num_nodes)]
    edges = np.array([(i, i - 1) for i in range(1, num_nodes)]).reshape(-1, 2)
    return HloGraph(
        features, np.array(opcodes, np.uint8), edges, np.array([0, num_nodes])
    )


def layout_program(num_nodes=12, configs=16, seed=0):
    """Each transposed result of a dot costs as many nanoseconds as it has elements."""
    graph = chain(num_nodes, seed=seed)
    nodes = graph.configurable
    is_transposed = np.random.default_rng(seed).random((configs, len(nodes))) < 0.5
    is_transposed[0] = False
    rows = np.stack([layout_features([]), layout_features([(0, 1)])])
    times = 1000 + (is_transposed * graph.node_feat[nodes, 28]).sum(axis=1)
    return MeasuredGraph(
        f"program{seed}",
        graph,
        rows[is_transposed.astype(int)],
        nodes,
        times.astype(np.int64),
        provenance=Provenance("synthetic", default=0),
    )


def kernel(configs=16, seed=0):
    """A larger output tile is faster."""
    random = np.random.default_rng(seed)
    tiles = [tuple(int(n) for n in random.integers(1, 64, 2)) for _ in range(configs)]
    times = np.array([10**6 // (a * b) + 1 for a, b in tiles])
    return MeasuredGraph(
        f"kernel{seed}",
        chain(4, seed=seed),
        np.stack([tile_features((), tile, ()) for tile in tiles]),
        None,
        times,
        np.full(configs, times.max()),
        Provenance("synthetic", default=int(times.argmax())),
    )
