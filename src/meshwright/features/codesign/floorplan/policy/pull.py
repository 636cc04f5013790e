"""Where nets pull each macro while macros are placed one after the other.

Nets are springs from their source to each sink. If all blocks that have no place yet follow
their nets freely, a macro is pulled to one point, a weighted mean of the macros that have a
place and of the fixed blocks (quadratic placement). Eliminating blocks from the last to
the first gives these weights for every macro at once.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.search.arrays import Bools, Floats, Ints, owners_of

_TO_CENTRE = 1e-3
"""Spring from each block to the canvas's centre, as a share of the mean block's springs.

It gives blocks a point that no net connects with the canvas.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Pull:
    """Points to which M macros are pulled, in order of placement.

    anchors: point if no macro had a place, [M, 2], in microns.
    weights: share of each macro before in the point, [M, M], zero from the diagonal on.
    stiffness: spring at the point relative to the mean macro's, [M].
    """

    anchors: Floats
    weights: Floats
    stiffness: Floats


def adjacency(tables: Tables) -> sparse.csr_array:
    """Summed weight of the nets between two blocks, source and sink, symmetric, [B, B]."""
    count, starts = len(tables.width), tables.ends_at
    nets = owners_of(starts)
    sources = tables.end_block[starts[:-1]][nets]
    sinks, weights = tables.end_block, tables.wire_weight[nets]
    apart = sources != sinks
    pairs = (sources[apart], sinks[apart])
    one_way = sparse.coo_array((weights[apart], pairs), shape=(count, count)).tocsr()
    return sparse.csr_array(one_way + one_way.T)


def make_pull(
    tables: Tables,
    links: sparse.csr_array,
    order: Ints,
    is_free: Bools,
    places: tuple[Floats, Floats],
) -> Pull:
    """The pull on macros that are placed in this order.

    links: see `adjacency`. is_free: blocks that may move, [B]. places: x and y of all
        blocks, of which those of fixed blocks are used.
    """
    degree = np.asarray(links.sum(axis=1)).ravel()
    spring = _TO_CENTRE * max(float(degree[is_free].mean()), 1e-12)
    laplacian = sparse.csr_array(sparse.diags_array(degree + spring) - links)
    others = np.setdiff1d(np.flatnonzero(is_free), order)
    fixed = np.flatnonzero(~is_free)
    centre = np.array([tables.width_all / 2, tables.height_all / 2])
    kept = np.stack(places, axis=1)[fixed]
    force = np.asarray(links[:, fixed] @ kept) + spring * centre
    matrix, goal = laplacian[order][:, order].toarray(), force[order]
    if len(others):
        across = laplacian[others][:, order].toarray()
        inner = splu(sparse.csc_array(laplacian[others][:, others]))
        loads = np.concatenate([across, force[others]], axis=1)
        solved: Floats = np.asarray(inner.solve(loads), np.float64)
        matrix = matrix - across.T @ solved[:, : len(order)]
        goal = goal - across.T @ solved[:, len(order) :]
    return _eliminate(matrix, goal)


def _eliminate(matrix: Floats, goal: Floats) -> Pull:
    """The pull of springs `matrix` [M, M] and forces `goal` [M, 2]."""
    count = len(matrix)
    anchors, weights, stiffness = (
        np.zeros(shape) for shape in ((count, 2), (count, count), count)
    )
    for last in range(count - 1, -1, -1):
        own, row = matrix[last, last], matrix[last, :last]
        anchors[last], weights[last, :last] = goal[last] / own, -row / own
        stiffness[last] = own
        column = matrix[:last, last].copy()
        goal = goal[:last] - column[:, None] * anchors[last]
        matrix = matrix[:last, :last] + column[:, None] * weights[last, :last]
    return Pull(anchors, weights, stiffness / max(float(stiffness.mean()), 1e-12))
