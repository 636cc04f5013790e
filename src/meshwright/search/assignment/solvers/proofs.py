"""HiGHS (through SciPy) on the linearised problem.

The integer program has one 0-1 variable per choice and one per pair of choices of an
edge. Pair costs are linearised as in Alpa (Zheng et al., OSDI 2022): over all pairs of
an edge that contain a choice, the pair variables sum to the variable of that choice.
"""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from meshwright.search.arrays import Bools, Floats, Ints, owners_of, ranges, starts_of
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.memory_rows import MemoryRows
from meshwright.search.assignment.problem.reduced_problem import (
    CostGraph,
    ReducedProblem,
)

_CHILD = Path(__file__).with_name("highs_child.py")

_SPARE_S = 0.7
"""Seconds that are kept back, so that the answer arrives before the time is up."""

_TOLERANCE = 1e-6
"""Relative tolerance of HiGHS, by which its bound may be too high."""


class BinaryProgram(NamedTuple):
    """Minimize costs @ x over 0-1 vectors x: equal @ x = wanted, usage @ x <= limits.

    num_choices: number of variables for choices; the variables for pairs follow them
    allowed: whether each variable may be 1
    """

    num_choices: int
    costs: Floats
    allowed: Bools
    equal: sparse.csr_array
    wanted: Floats
    usage: sparse.csr_array
    limits: Floats


def linearise(graph: Assignment | CostGraph, node_costs: Floats) -> BinaryProgram:
    """The integer program of an assignment problem, without its memory constraints."""
    num_choices = int(graph.starts[-1])
    costs = np.concatenate([node_costs, graph.tables])
    allowed = costs < np.inf
    equal = _equalities(graph, len(costs))
    wanted = np.zeros(len(equal.indptr) - 1)
    wanted[: len(graph.starts) - 1] = 1
    return BinaryProgram(
        num_choices,
        np.where(allowed, costs, 0.0),
        allowed,
        equal,
        wanted,
        sparse.csr_array((0, len(costs))),
        np.zeros(0),
    )


def chosen(starts: Ints, values: Floats) -> Ints:
    """The choice of each node, read off the variables of the integer program."""
    best = np.zeros(len(starts) - 1, np.int64)
    owners = owners_of(starts)
    on = np.flatnonzero(values[: starts[-1]] > 0.5)
    best[owners[on]] = on - starts[owners[on]]
    return best


def linearise_reduced(reduced: ReducedProblem, memory: MemoryRows) -> BinaryProgram:
    """The integer program of a reduced problem, with one constraint per memory row."""
    parts = memory.segments
    node = owners_of(parts.starts)
    widths = reduced.widths[node]
    length = np.repeat(parts.ends - parts.rows, widths)
    columns = np.repeat(ranges(reduced.graph.starts[node], widths), length)
    rows = ranges(np.repeat(parts.rows, widths), length)
    entries = np.repeat(parts.excess, length), (rows, columns)
    linear = linearise(reduced.graph, reduced.costs)
    shape = memory.num_rows, len(linear.costs)
    usage = sparse.csr_array(entries, shape=shape)
    return linear._replace(usage=usage, limits=memory.slack)


def _equalities(graph: Assignment | CostGraph, num_variables: int) -> sparse.csr_array:
    """The matrix of the equations of the integer program.

    They say that each node has one choice, and that the pair variables which contain a
    choice sum to the variable of that choice.
    """
    widths = np.diff(graph.starts)
    num_choices = int(graph.starts[-1])
    one, two = graph.ends[:, 0], graph.ends[:, 1]
    edge = owners_of(graph.table_starts)
    within = np.arange(len(graph.tables)) - graph.table_starts[edge]
    row_starts = len(widths) + starts_of(widths[one] + widths[two])
    first = row_starts[edge] + within // widths[two][edge]
    second = row_starts[edge] + widths[one][edge] + within % widths[two][edge]
    node = np.concatenate([one, two])
    sums = widths[node]
    offset = np.concatenate([row_starts[:-1], row_starts[:-1] + widths[one]])
    pairs = num_choices + np.arange(len(graph.tables))
    choices = ranges(graph.starts[node], sums)
    rows = [owners_of(graph.starts), first, second, ranges(offset, sums)]
    columns = [np.arange(num_choices), pairs, pairs, choices]
    signs = [np.ones(num_choices + 2 * len(pairs)), -np.ones(len(choices))]
    return sparse.csr_array(
        (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))),
        shape=(int(row_starts[-1]), num_variables),
    )


def prove(incumbent: Incumbent) -> None:
    """Run HiGHS in a process of its own, and offer its solution and bound at the end.

    It runs until the optimum is proven, the search stops, or the time is nearly up.
    """
    if incumbent.clock.left_s - _SPARE_S <= 1:
        return
    child = subprocess.Popen(
        [sys.executable, "-P", str(_CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches only the parent
    )
    incumbent.stops.append(child.kill)
    if incumbent.is_over:
        child.kill()
    # A plain tuple, which a process can read without this package.
    parts = tuple(linearise_reduced(incumbent.reduced, incumbent.memory))
    # The time is read last: to linearise a million entries takes a second.
    left_s = max(0.0, incumbent.clock.left_s - _SPARE_S)
    answer, _ = child.communicate(pickle.dumps((parts, left_s)))
    if not answer or child.returncode != 0:
        return
    values, bound = pickle.loads(answer)
    if values is not None:
        incumbent.offer(chosen(incumbent.reduced.graph.starts, values))
    incumbent.raise_bound(bound - _TOLERANCE * abs(bound) if bound < np.inf else bound)
    incumbent.stopped = incumbent.stopped or bound == np.inf
