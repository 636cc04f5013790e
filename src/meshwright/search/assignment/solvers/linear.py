"""Linearisation: an integer program with a variable per choice and per pair of choices.

Pair costs are linearised as in Alpa (Zheng et al., OSDI 2022): the pair variables of an
edge sum to the choice variables at either end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from meshwright.search.arrays import Bools, Floats, Ints, owners_of, starts_of
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.memory_rows import MemoryRows
from meshwright.search.assignment.problem.reduced_problem import ReducedProblem


@dataclass(frozen=True, slots=True, eq=False)
class BinaryProgram:
    """Minimise costs @ x over 0-1 vectors x with equal @ x = wanted, usage @ x <= limit.

    num_choices: number of choice variables; pair variables follow them
    allowed: whether a variable may be 1
    """

    num_choices: int
    costs: Floats
    allowed: Bools
    equal: sparse.csr_array
    wanted: Floats
    usage: sparse.csr_array
    limits: Floats


def linearise(problem: Assignment | ReducedProblem) -> BinaryProgram:
    """The integer program of a problem, without its memory constraints."""
    num_choices = int(problem.starts[-1])
    costs = np.concatenate([problem.costs, problem.tables])
    allowed = costs < np.inf
    equal = _equalities(problem, len(costs))
    wanted = np.zeros(len(equal.indptr) - 1)
    wanted[: problem.num_nodes] = 1
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
    """The choice of each node in a solution of the integer program."""
    best = np.zeros(len(starts) - 1, np.int64)
    owners = owners_of(starts)
    on = np.flatnonzero(values[: starts[-1]] > 0.5)
    best[owners[on]] = on - starts[owners[on]]
    return best


def linearise_reduced(reduced: ReducedProblem, memory: MemoryRows) -> BinaryProgram:
    """The integer program of a reduced problem, with a constraint for each memory row."""
    parts = memory.segments
    node = owners_of(parts.starts)
    widths = reduced.widths[node]
    length = np.repeat(parts.ends - parts.rows, widths)
    within = np.arange(len(parts.excess)) - np.repeat(parts.block_starts[:-1], widths)
    column = np.repeat(reduced.starts[:-1][node], widths) + within
    steps = np.arange(length.sum()) - np.repeat(starts_of(length)[:-1], length)
    rows = np.repeat(np.repeat(parts.rows, widths), length) + steps
    entries = np.repeat(parts.excess, length), (rows, np.repeat(column, length))
    linear = linearise(reduced)
    shape = memory.num_rows, len(linear.costs)
    usage = sparse.csr_array(entries, shape=shape)
    return replace(linear, usage=usage, limits=memory.slack)


def _equalities(
    problem: Assignment | ReducedProblem, num_variables: int
) -> sparse.csr_array:
    """Equality rows: one choice per node; pair variables sum to those of the choices."""
    widths = np.diff(problem.starts)
    num_choices = int(problem.starts[-1])
    one, two = problem.ends[:, 0], problem.ends[:, 1]
    sizes = np.diff(problem.table_starts)
    edge = np.repeat(np.arange(len(sizes)), sizes)
    within = np.arange(len(problem.tables)) - problem.table_starts[edge]
    row_starts = problem.num_nodes + starts_of(widths[one] + widths[two])
    first = row_starts[edge] + within // widths[two][edge]
    second = row_starts[edge] + widths[one][edge] + within % widths[two][edge]
    sums = np.concatenate([widths[one], widths[two]]) if len(one) else np.zeros(0, int)
    node = np.concatenate([one, two])
    offset = np.concatenate([row_starts[:-1], row_starts[:-1] + widths[one]])
    steps = np.arange(sums.sum()) - np.repeat(starts_of(sums)[:-1], sums)
    pairs = num_choices + np.arange(len(problem.tables))
    rows = [
        owners_of(problem.starts),
        first,
        second,
        np.repeat(offset, sums) + steps,
    ]
    columns = [
        np.arange(num_choices), pairs, pairs,
        np.repeat(problem.starts[node], sums) + steps,
    ]  # fmt: skip
    signs = [np.ones(num_choices + 2 * len(pairs)), -np.ones(len(steps))]
    return sparse.csr_array(
        (np.concatenate(signs), (np.concatenate(rows), np.concatenate(columns))),
        shape=(int(row_starts[-1]), num_variables),
    )
