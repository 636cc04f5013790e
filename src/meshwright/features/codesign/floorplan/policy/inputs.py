"""A chip as arrays for the policy's network, padded to one of a few sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.policy.graph import (
    HARD,
    PORTS,
    SOFT,
    NetlistGraph,
    make_graph,
)
from meshwright.features.codesign.floorplan.policy.task import MacroTask
from meshwright.learn.graphs import pad_rows, padded_size

NUM_FEATURES = 14
"""Features of a node."""

FIELD = 16
"""Side of the field that the network spreads over the canvas."""

_SIDES = (16, 32, 64, 128)
"""Sides of padded grids; each is compiled once."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class ChipArrays:
    """A chip of N nodes, E edges (both directions) and M macros to place, all padded.

    features: [N, 14]. node_mask: [N]. edges: receivers, senders and weights, [E].
    order: node of the macro of each step, [M].
    across, up: weights with which cells take values of the field, [G, `FIELD`].
    """

    features: Any
    node_mask: Any
    edges: tuple[Any, Any, Any]
    order: Any
    across: Any
    up: Any


def side_of(task: MacroTask) -> int:
    """The side of the padded grid of a task."""
    longest = max(task.rows, task.columns)
    return next((side for side in _SIDES if side >= longest), longest)


def chip_arrays(task: MacroTask) -> ChipArrays:
    """The arrays of a task."""
    graph, side = make_graph(task), side_of(task)
    nodes = padded_size(len(graph.types) + 1)
    order = graph.node_of_block[task.order]
    return ChipArrays(
        features=pad_rows(_features(task, graph), nodes),
        node_mask=pad_rows(np.ones(len(graph.types), np.float32), nodes),
        edges=_edges(graph, nodes - 1),
        order=pad_rows(order.astype(np.int32), padded_size(len(order)), nodes - 1),
        across=_spread(task.columns, side),
        up=_spread(task.rows, side),
    )


def _features(task: MacroTask, graph: NetlistGraph) -> NDArray[np.float32]:
    """Features of each node, about -1 to 1, [N, 14]."""
    canvas, count = task.frame.canvas, len(graph.types)
    width, height = graph.width / canvas.width, graph.height / canvas.height
    order = graph.node_of_block[task.order]
    turn, stiffness = np.zeros(count), np.zeros(count)
    anchor = np.zeros((count, 2))
    turn[order] = np.arange(1, len(order) + 1) / len(order)
    stiffness[order] = np.log1p(task.pull.stiffness)
    anchor[order] = task.pull.anchors / [canvas.width, canvas.height] - 0.5
    columns = [
        *(graph.types == kind for kind in (HARD, SOFT, PORTS)),
        4 * width,
        4 * height,
        4 * np.sqrt(width * height),
        np.log1p(graph.degrees) / 4,
        graph.is_fixed,
        np.where(graph.is_fixed, graph.x / canvas.width - 0.5, 0.0),
        np.where(graph.is_fixed, graph.y / canvas.height - 0.5, 0.0),
        turn,
        stiffness,
        anchor[:, 0],
        anchor[:, 1],
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _edges(graph: NetlistGraph, last: int) -> tuple[Any, Any, Any]:
    """Receivers, senders and weights in both directions; padding joins the last node."""
    both = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    order = np.argsort(both[:, 0], kind="stable")
    weights = np.tile(graph.weights, 2)[order]
    size = padded_size(len(both))
    receivers, senders = (
        pad_rows(both[order, i].astype(np.int32), size, last) for i in range(2)
    )
    return receivers, senders, pad_rows(np.log1p(weights).astype(np.float32), size)


def _spread(lines: int, side: int) -> NDArray[np.float32]:
    """Weights of linear interpolation from the field to the centres of lines of cells."""
    spread = np.zeros((side, FIELD), np.float32)
    place = np.clip((np.arange(lines) + 0.5) / lines * FIELD - 0.5, 0, FIELD - 1)
    low = np.minimum(place.astype(np.int64), FIELD - 2)
    spread[np.arange(lines), low] = 1 - (place - low)
    spread[np.arange(lines), low + 1] = place - low
    return spread
