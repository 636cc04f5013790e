"""Programs and configurations as padded arrays, the inputs of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.features.tune.learned.features import (
    DIM_COLUMNS,
    LAYOUT_COLUMNS,
    mark_missing_dims,
)
from meshwright.features.tune.learned.measured_graph import Collection, MeasuredGraph
from meshwright.learn.graphs import (
    GraphArrays,
    inner_edges,
    moments,
    pad_rows,
    signed_log,
)
from meshwright.learn.segments import InputFn

_REGISTER = 128
"""Lanes of a TPU's vector register, and rows and columns of its matrix unit."""


class Lesson(Enum):
    """A trick of the winners of Kaggle's contest "Fast or Slow?".

    Each can be switched off to measure what it is worth.
    """

    PADDING = "padding"  # a missing dim of a layout is -1, not 0
    PRUNING = "pruning"  # only configurable nodes and their neighbours are kept
    EXTRA_FEATURES = "extra-features"  # sizes modulo 128, and divided by 128
    CROSS_CONFIG = "cross-config"  # attention over the configurations of a graph
    EARLY_JOIN = "early-join"  # configurations are known before messages are passed


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class ProgramArrays:
    """A program of N instructions with K configurable ones, all padded.

    graph: standardised features, and edges from operands to users. opcodes: [N].
    layouts: [N, 6], dims minor to major. config_nodes: [K], N for padding.
    """

    graph: GraphArrays
    opcodes: Any
    layouts: Any
    config_nodes: Any


@dataclass(frozen=True, slots=True, eq=False)
class Scaler:
    """The mean and 1 / standard deviation of each feature over a training set.

    Features of nodes [F] are first mapped to sign(x) log(1 + |x|), and so are tilings
    [24]. A constant feature has scale 0, so that it is 0 in every graph.
    """

    node_mean: NDArray[np.float32]
    node_scale: NDArray[np.float32]
    config_mean: NDArray[np.float32]
    config_scale: NDArray[np.float32]

    @classmethod
    def fit(cls, graphs: Sequence[MeasuredGraph], lessons: frozenset[Lesson]) -> Scaler:
        nodes = [_raw_features(g.graph.node_feat, lessons) for g in graphs]
        tilings = [signed_log(g.config_feat) for g in graphs if g.config_nodes is None]
        configs = tilings or [np.zeros((1, 1), np.float32)]
        return cls(*moments(np.concatenate(nodes)), *moments(np.concatenate(configs)))


def graph_inputs(
    measured: MeasuredGraph,
    scaler: Scaler,
    lessons: frozenset[Lesson],
    num_nodes: int | None = None,
) -> list[InputFn]:
    """One function per part of a graph, of the configurations whose features it gives.

    A part is a segment of `num_nodes` consecutive nodes, or the whole graph if that is
    `None`. All parts have arrays of the same sizes. Edges between segments are dropped.
    """
    graph, nodes = measured.graph, np.arange(measured.graph.num_nodes)
    if Lesson.PRUNING in lessons and len(measured.layout_nodes):
        nodes = kept_by_pruning(measured)
    size = num_nodes or len(nodes)
    groups = [nodes[start : start + size] for start in range(0, len(nodes), size)]
    edges = [inner_edges(graph.edge_index, group) for group in groups]
    places = [np.flatnonzero(np.isin(measured.layout_nodes, g)) for g in groups]
    padded_n = _round_up(max(map(len, groups)) + 1)
    padded_e = _round_up(max(map(len, edges)))
    padded_k = _round_up(max(map(len, places)))
    has_marks, node_feat = Lesson.PADDING in lessons, graph.node_feat
    marked = mark_missing_dims(node_feat) if has_marks else node_feat
    raw = _raw_features(node_feat, lessons)
    features = (raw - scaler.node_mean) * scaler.node_scale

    def part(of: NDArray[Any], edges: NDArray[Any], places: NDArray[Any]) -> InputFn:
        config_nodes = np.searchsorted(of, measured.layout_nodes[places])
        arrays = ProgramArrays(
            GraphArrays.padded(features[of], edges, padded_n, padded_e),
            pad_rows(graph.node_opcode[of].astype(np.int32), padded_n),
            pad_rows(marked[of, LAYOUT_COLUMNS].astype(np.int32), padded_n),
            pad_rows(config_nodes.astype(np.int32), padded_k, padded_n),
        )
        return partial(_part_inputs, measured, scaler, arrays, places)

    return list(map(part, groups, edges, places))


def _part_inputs(
    measured: MeasuredGraph,
    scaler: Scaler,
    arrays: ProgramArrays,
    places: NDArray[np.int64],
    configs: NDArray[np.int64],
) -> tuple[ProgramArrays, NDArray[Any]]:
    """One part's arrays, and the features of configurations in it.

    The features are tilings [C, 24], or layouts [C, K, 18].

    places: columns of the graph's `config_feat` that belong to the part's nodes.
    """
    features = measured.config_feat[configs]
    if measured.collection is Collection.TILE:
        tilings = (signed_log(features) - scaler.config_mean) * scaler.config_scale
        return arrays, tilings
    layouts = features[:, places].astype(np.int32)
    rest = ((0, 0), (0, len(arrays.config_nodes) - len(places)), (0, 0))
    return arrays, np.pad(layouts, rest, constant_values=-1)


def kept_by_pruning(measured: MeasuredGraph) -> NDArray[np.int64]:
    """Configurable nodes and their direct neighbours, in rising order."""
    edges, nodes = measured.graph.edge_index, measured.layout_nodes
    touching = np.isin(edges, nodes).any(axis=1)
    return np.unique(np.concatenate([nodes, edges[touching].reshape(-1)]))


def _raw_features(
    node_feat: NDArray[np.float32], lessons: frozenset[Lesson]
) -> NDArray[np.float32]:
    """Features of nodes [n, F] before standardisation, without the layouts' columns."""
    parts = [signed_log(node_feat[:, : LAYOUT_COLUMNS.start])]
    if Lesson.EXTRA_FEATURES in lessons:
        sizes = node_feat[:, DIM_COLUMNS]
        parts += [sizes % _REGISTER / _REGISTER, signed_log(sizes // _REGISTER)]
    return np.concatenate(parts, axis=1).astype(np.float32)


def _round_up(count: int) -> int:
    """The smallest 2^i or 3 * 2^i that is at least `count`, and at least 8."""
    size = 8
    while size < count:
        size = size * 3 // 2 if size & (size - 1) == 0 else size // 3 * 4
    return size
