"""Baselines that a learned model has to beat: chance, the default, copies, LightGBM.

Each maps a graph to one score per configuration [c]; a lower score means faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.features import (
    DIM_COLUMNS,
    ELEMENTS_COLUMN,
    LAYOUT_COLUMNS,
    MAX_RANK,
    NO_DIM,
    mark_missing_dims,
)
from meshwright.features.tune.learned.hlo.opcodes import NUM_OPCODES
from meshwright.features.tune.learned.measured_graph import Collection, MeasuredGraph

Scores = NDArray[np.floating[Any]]
Scorer = Callable[[MeasuredGraph], Scores]


def random_scores(measured: MeasuredGraph, seed: int) -> Scores:
    """Random scores [c], the same for the same seed."""
    return np.random.default_rng(seed).random(measured.num_configs)


def default_scores(measured: MeasuredGraph) -> Scores:
    """Scores [c]: 0 for the compiler's default, 1 for all others; 1 if it is unknown."""
    scores = np.ones(measured.num_configs)
    if measured.default_config is not None:
        scores[measured.default_config] = 0
    return scores


def copy_scores(measured: MeasuredGraph) -> Scores:
    """Scores [c]: number of elements that are copied from one layout to another.

    A value is copied where a configurable node wants another layout of its operand than
    the operand has. Values without a chosen layout keep their layout in the graph. The
    published graph does not keep the order of operands, so that a wanted layout is that
    of the first remaining operand of its rank.
    """
    if measured.collection is not Collection.LAYOUT:
        raise LearnedError(
            f"{measured.name} chooses tilings: copies are counted for layouts only"
        )
    wanted = measured.config_feat.reshape(*measured.config_feat.shape[:2], 3, MAX_RANK)
    node_layouts = mark_missing_dims(measured.graph.node_feat)[:, LAYOUT_COLUMNS]
    elements = measured.graph.node_feat[:, ELEMENTS_COLUMN]
    edges = measured.graph.edge_index
    columns = {int(node): i for i, node in enumerate(measured.layout_nodes)}
    scores = np.zeros(measured.num_configs)
    for node, column in columns.items():
        for slot, operand in _operand_slots(measured, node, wanted[:, column]):
            shape = measured.num_configs, MAX_RANK
            has = np.broadcast_to(node_layouts[operand], shape)
            if operand in columns:
                has = _or_default(wanted[:, columns[operand], 0], has)
            needs = _or_default(wanted[:, column, slot], node_layouts[operand])
            scores += elements[operand] * (has != needs).any(axis=1)
        result = _or_default(wanted[:, column, 0], node_layouts[node])
        users = edges[edges[:, 1] == node, 0]
        is_read = any(int(user) not in columns for user in users)
        scores += is_read * elements[node] * (result != node_layouts[node]).any(axis=1)
    return scores


def _operand_slots(
    measured: MeasuredGraph, node: int, wanted: Scores
) -> list[tuple[int, int]]:
    """The operands of a node for which a configuration wants a layout.

    Pairs of (1 or 2 for the node's first or second input, node that computes that operand).
    """
    edges = measured.graph.edge_index
    sizes = measured.graph.node_feat[:, DIM_COLUMNS]
    operands = [int(operand) for operand in edges[edges[:, 0] == node, 1]]
    pairs: list[tuple[int, int]] = []
    for slot in (1, 2):
        rank = int((wanted[:, slot] != NO_DIM).sum(axis=1).max())
        fitting = [o for o in operands if rank in (0, int((sizes[o] != 0).sum()))]
        if fitting:
            pairs.append((slot, fitting[0]))
            operands.remove(fitting[0])
    return pairs


def _or_default(layouts: Scores, default: Scores) -> Scores:
    """Layouts [c, 6], with `default` in place of rows that are all -1 (not chosen)."""
    return np.where((layouts == NO_DIM).all(axis=1, keepdims=True), default, layouts)


def boosted_trees(graphs: Sequence[MeasuredGraph], seed: int) -> Scorer:
    """A LightGBM model that ranks configurations by counts of nodes and of layouts.

    It is trained on graphs with LambdaRank, each graph as one query.
    """
    try:
        lightgbm: Any = import_module("lightgbm")
    except ImportError as missing:
        raise LearnedError(
            "the LightGBM baseline needs the package lightgbm: install the extra"
            " `meshwright[learned]`"
        ) from missing
    rows = [_config_rows(measured) for measured in graphs]
    labels = [_relevance(measured.targets) for measured in graphs]
    data = lightgbm.Dataset(
        np.concatenate(rows), np.concatenate(labels), group=[len(r) for r in rows]
    )
    options = {
        "objective": "lambdarank",
        "label_gain": list(range(_GRADES)),
        "lambdarank_truncation_level": 100,
        "learning_rate": 0.1,
        "num_leaves": 15,
        "min_data_in_leaf": 5,
        "verbosity": -1,
        "seed": seed,
        "deterministic": True,
        "num_threads": 1,
    }
    booster = lightgbm.train(options, data, num_boost_round=200)
    return lambda measured: -np.asarray(booster.predict(_config_rows(measured)))


_GRADES = 32
"""Grades of relevance, from slowest to fastest."""


def _relevance(times: NDArray[np.float64]) -> NDArray[np.int64]:
    """The grades [c] that LambdaRank trains on, from 0 to 31; 31 is the fastest."""
    ranks = np.argsort(np.argsort(-times, kind="stable"), kind="stable")
    return ranks * _GRADES // len(times)


def _config_rows(measured: MeasuredGraph) -> NDArray[np.float32]:
    """Features of configurations for LightGBM [c, f]: counts of nodes and layouts."""
    graph = measured.graph
    counts = np.bincount(graph.node_opcode, minlength=NUM_OPCODES)
    largest = graph.node_feat[:, : LAYOUT_COLUMNS.start].max(axis=0)
    fixed = np.log1p(np.abs(np.concatenate([counts, largest])))
    if measured.collection is Collection.TILE:
        tilings = measured.config_feat
        backwards = graph.node_feat[::-1]
        root = backwards[np.argmax(backwards[:, 0]), DIM_COLUMNS]  # the last root
        tiles = np.maximum(tilings[:, 8:14], 1)
        columns = [tilings, np.ceil(np.maximum(root, 1) / tiles), np.log1p(tilings)]
    else:
        layouts = measured.config_feat
        elements = graph.node_feat[measured.layout_nodes, ELEMENTS_COLUMN]
        is_dim = layouts[..., None] == np.arange(NO_DIM, MAX_RANK)
        weighted = np.einsum("cnfd,n->cfd", is_dim, np.log1p(elements))
        columns = [weighted.reshape(len(layouts), -1), copy_scores(measured)[:, None]]
    repeated = np.broadcast_to(fixed, (measured.num_configs, len(fixed)))
    return np.concatenate([repeated, *columns], axis=1).astype(np.float32)


def plain_scorers(collection: Collection, seed: int) -> dict[str, Scorer]:
    """The baselines that need no training, by name."""
    scorers: dict[str, Scorer] = {
        "random": lambda measured: random_scores(measured, seed),
        "default": default_scores,
    }
    if collection is Collection.LAYOUT:
        scorers["copies"] = copy_scores
    return scorers
