"""The best partition that cuts the ops, in a given order, into consecutive stages.

If the graph is a chain, this is the best of all partitions. For other graphs a stronger
rule than the triangle constraint keeps cuts valid: every edge leads at most to the next
stage. Then a cut depends only on the cut before it, and a dynamic program over cuts
finds the best.
"""

from __future__ import annotations

import numpy as np

from meshwright.features.chips.constraints.repair import close_holes
from meshwright.features.chips.problem.chip_problem import ChipProblem, weights_by_op
from meshwright.features.chips.problem.load import ReadColumns, load_of
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled

_TRIES = 4
"""Number of attempts with ever less memory, if a cut does not fit into memory."""


def best_cut(problem: ChipProblem, order: Ints | None = None) -> Ints | None:
    """The chip of each op if the ops are cut into consecutive stages, one per chip.

    `None` if no cut fits into memory.
    order: ops from first to last, topological; the graph's own order if it is `None`.
    """
    graph, module, columns = problem.graph, problem.module, problem.columns
    if order is None:
        order = np.arange(graph.num_ops)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    link = module.link_bytes_per_s, module.latency_s
    crossing_s, last_read = _crossings(columns, place, *link)
    sums = np.concatenate([[0.0], np.cumsum(graph.seconds[order])])
    held = np.concatenate([[0.0], np.cumsum(weights_by_op(graph)[order])])
    allowed = float(module.memory_bytes)
    for _ in range(_TRIES):
        stages = _cut(sums, held, crossing_s, last_read, allowed, module.num_chips)
        if stages[-1] < 0:
            return None
        chips = np.empty(len(order), np.int64)
        chips[order] = stages
        chips = close_holes(chips)
        load = load_of(columns, module, chips)
        if load.fits:
            return chips
        allowed -= max(float(load.memory_bytes.max() - module.memory_bytes), 1.0)
    return None


@compiled
def _crossings(
    c: ReadColumns, place: Ints, bytes_per_s: float, latency_s: float
) -> tuple[Floats, Ints]:
    """Seconds to send all values that cross a cut before each place of the order.

    Also the place of the last reader of these values.
    """
    n = len(place)
    seconds, last = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for u in range(n):
        for v in range(c.first[u], c.first[u + 1]):
            end = place[u]
            for e in range(c.reader_at[v], c.reader_at[v + 1]):
                end = max(end, place[c.readers[e]])
            sent_s = c.value_bytes[v] / bytes_per_s + latency_s
            for cut in range(place[u] + 1, end + 1):
                seconds[cut] += sent_s
                last[cut] = max(last[cut], end)
    return seconds, last


@compiled
def _cut(
    sums: Floats,
    held: Floats,
    crossing_s: Floats,
    last_read: Ints,
    allowed: float,
    most_stages: int,
) -> Ints:
    """The stage of each place in the order of ops; -1 if no cut fits into memory.

    In the code, best[k, q] is the least bottleneck of the first q places in k + 1
    stages, and `before` the place of its last cut.
    """
    n = len(sums) - 1
    best = np.full((most_stages, n + 1), np.inf)
    before = np.zeros((most_stages, n + 1), np.int64)
    for q in range(1, n + 1):
        if held[q] <= allowed:
            best[0, q] = sums[q]
    for k in range(1, most_stages):
        for p in range(1, n):
            so_far = max(best[k - 1, p], crossing_s[p])
            if so_far >= best[:k, n].min():
                continue
            for q in range(max(p, last_read[p]) + 1, n + 1):
                stage_s = sums[q] - sums[p]
                if held[q] - held[p] > allowed or stage_s >= best[k - 1, n]:
                    break
                found = max(so_far, stage_s)
                if found < best[k, q]:
                    best[k, q] = found
                    before[k, q] = p
    return _stages(best, before)


@compiled
def _stages(best: Floats, before: Ints) -> Ints:
    """The stage of each place in the best cut of all; -1 if no cut fits.

    best, before: tables of `_cut`.
    """
    n = best.shape[1] - 1
    stages = np.full(n, -1, np.int64)
    k = int(best[:, n].argmin())
    if best[k, n] == np.inf:
        return stages
    q = n
    while k >= 0:
        p = before[k, q] if k else 0
        stages[p:q] = k
        q = p
        k -= 1
    return stages
