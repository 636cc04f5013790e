"""Propagation over columns and `Propagator` end in the same state, on random programs."""

import random
import warnings

import numpy as np
import pytest

from meshwright.machine import Mesh
from meshwright.partitioner.decide import start_workspace
from meshwright.partitioner.propagate import Graph
from meshwright.planner.columns.graph_columns import columns_of
from meshwright.planner.columns.propagation import cut, new_worklist
from meshwright.planner.columns.state_cells import start_cells
from meshwright.planner.strategies.symmetry import Runs, group_nodes
from tests.fuzz.case import draw_case

CUTS = 12
CASES_EACH = 6


def start(rng):
    """The workspace of a random program on a random mesh, with nothing decided."""
    case = draw_case(rng)
    captured = case.partitioned().capture(*case.args())
    graph = Graph(captured.program, captured.ties)
    return start_workspace(captured, Mesh(dict(case.mesh)), graph)


@pytest.mark.parametrize("block", range(8))
def test_random_cuts_of_random_programs_lead_to_the_same_states(block):
    """Each cut is of any node, not only of an input; refusals agree, too."""
    num_legal = 0
    for seed in range(block * CASES_EACH, (block + 1) * CASES_EACH):
        rng = random.Random(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy, about random constants
            work = start(rng)
        state, nodes = work.state, [n for n in work.graph.nodes if n.sizes]
        single = group_nodes(Runs(work.graph), range(len(work.graph.nodes)))
        columns, axes = columns_of(state, single), list(state.size)
        worklist = new_worklist(columns)
        cells = np.array(start_cells(columns, state, single))
        for _ in range(CUTS if nodes else 0):
            node, axis = rng.choice(nodes), rng.choice(axes)
            factor = rng.randrange(len(node.sizes))
            refusal = work.propagator.cut(node, axis, factor)
            number = axes.index(axis)
            is_cut = cut(columns, cells, worklist, node.index, number, factor)
            assert is_cut == (refusal is None), (seed, node.label, refusal)
            assert np.array_equal(cells, start_cells(columns, state, single)), seed
            num_legal += is_cut
    assert num_legal > CASES_EACH
