"""The graph of a netlist as agents see it: macros, soft macros, and clusters of ports.

Ports of one grid cell are one node, as in Circuit Training.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from meshwright.features.codesign.floorplan.netlist.canvas import Canvas
from meshwright.features.codesign.floorplan.policy.task import MacroTask
from meshwright.search.arrays import Bools, Floats, Ints

HARD, SOFT, PORTS = 1, 2, 3
"""Types of nodes, as Circuit Training numbers them."""


@dataclass(frozen=True, slots=True, eq=False)
class NetlistGraph:
    """N nodes and E edges, macros and soft macros first, in order of the netlist.

    types: `HARD`, `SOFT` or `PORTS`, [N]. width, height: microns, 0 but for macros, [N].
    x, y: microns, of nodes that are placed from the beginning, [N].
    is_fixed: those nodes, [N].
    edges: nodes of each edge, the lesser first, [E, 2].
    weights: weight of the nets between them relative to the mean edge's, [E].
    node_of_block: [B].
    """

    types: Ints
    width: Floats
    height: Floats
    x: Floats
    y: Floats
    is_fixed: Bools
    edges: Ints
    weights: Floats
    node_of_block: Ints

    @property
    def degrees(self) -> Ints:
        """Edges of each node, [N]."""
        return np.bincount(self.edges.ravel(), minlength=len(self.types))


def make_graph(task: MacroTask) -> NetlistGraph:
    """The graph of a task's netlist."""
    tables, frame, canvas = task.tables, task.frame, task.frame.canvas
    blocks = np.flatnonzero(tables.has_area)
    ports = np.flatnonzero(~tables.has_area)
    cells = _cells(canvas, frame.x[ports], frame.y[ports])
    taken, cluster = np.unique(cells, return_inverse=True)
    port_x, port_y = _centres(canvas, taken)
    node_of_block = np.zeros(len(tables.width), np.int64)
    node_of_block[blocks] = np.arange(len(blocks))
    node_of_block[ports] = len(blocks) + cluster
    hard, rest = tables.is_hard[blocks], np.zeros(len(taken))
    edges, weights = _edges(task.links, node_of_block)
    return NetlistGraph(
        types=np.concatenate([np.where(hard, HARD, SOFT), np.full(len(taken), PORTS)]),
        width=np.concatenate([np.where(hard, tables.width[blocks], 0.0), rest]),
        height=np.concatenate([np.where(hard, tables.height[blocks], 0.0), rest]),
        x=np.concatenate([frame.x[blocks], port_x]),
        y=np.concatenate([frame.y[blocks], port_y]),
        is_fixed=np.concatenate([frame.is_fixed[blocks], rest == 0]),
        edges=edges,
        weights=weights,
        node_of_block=node_of_block,
    )


def _cells(canvas: Canvas, x: Floats, y: Floats) -> Ints:
    """The cells of places, those outside of the canvas in the nearest one."""
    column = np.clip(np.floor(x / canvas.cell_width), 0, canvas.columns - 1)
    row = np.clip(np.floor(y / canvas.cell_height), 0, canvas.rows - 1)
    return (row * canvas.columns + column).astype(np.int64)


def _centres(canvas: Canvas, cells: Ints) -> tuple[Floats, Floats]:
    """Centres of cells, moved to the side of the canvas for cells that lie at one."""
    column, row = cells % canvas.columns, cells // canvas.columns
    return (
        _at_side(column, canvas.columns, canvas.width),
        _at_side(row, canvas.rows, canvas.height),
    )


def _at_side(line: Ints, lines: int, length: float) -> Floats:
    middle = (line + 0.5) * length / lines
    return np.where(line == 0, 0.0, np.where(line == lines - 1, length, middle))


def _edges(links: sparse.csr_array, node_of_block: Ints) -> tuple[Ints, Floats]:
    """Edges between nodes, with the weights of the links between their blocks."""
    pairs = sparse.coo_array(links)
    ends = (node_of_block[pairs.row], node_of_block[pairs.col])
    count = int(node_of_block.max(initial=-1)) + 1
    merged = sparse.coo_array(
        sparse.triu(sparse.csr_array((pairs.data, ends), shape=(count, count)), 1)
    )
    edges = np.stack([merged.row, merged.col], axis=1).astype(np.int64)
    weights = np.asarray(merged.data, np.float64)
    return edges, weights / max(float(weights.mean()) if len(weights) else 1.0, 1e-12)
