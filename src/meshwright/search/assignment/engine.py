"""Solutions and bounds at once: by turns on one thread, then on two."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from meshwright.search.assignment.graph import Graph, finite_graph
from meshwright.search.assignment.improve import Climber
from meshwright.search.assignment.incumbent import Incumbent
from meshwright.search.assignment.kernel import Kernel
from meshwright.search.assignment.presolve import presolve
from meshwright.search.assignment.problem import Assignment
from meshwright.search.assignment.relax import Dual, ascend
from meshwright.search.assignment.solve import Clock, Progress

_SMALL = 20_000  # pairs of choices up to which the search alternates on one thread
_ALTERNATIONS = 40
_WORK = (1e6, 5e6, 3e7)  # entries of all tables behind a bound, coarse to fine
_ASCENTS = 40


def run(
    problem: Assignment,
    clock: Clock,
    seed: int,
    on_progress: Callable[[Progress], None] | None,
) -> Incumbent:
    """What was found when time was up, all was proven, or Ctrl-C came."""
    kernel, memory = presolve(problem)
    pool = Incumbent(kernel, memory, clock, on_progress)
    try:
        _search(pool, finite_graph(kernel, _penalty(kernel)), seed)
    except KeyboardInterrupt:
        pool.stopped = True
    return pool


def _search(pool: Incumbent, graph: Graph, seed: int) -> None:
    """Alternate while that is quick and repeatable, then search on two threads."""
    dual = Dual(pool, graph, _WORK[0])
    pool.raise_bound(dual.evaluate())
    pool.offer(dual.decode())
    if pool.is_over:
        return
    climber = Climber(pool, graph, seed)
    is_small = len(graph.tables) <= _SMALL
    for _ in range(_ALTERNATIONS if is_small else 0):
        ascend(dual, 30)
        if pool.is_over:
            return
        climber.start_from(dual.decode(), dual.row_prices)
        climber.settle()
        climber.round()
    _search_both(pool, climber, dual, graph, seed)


def _search_both(
    pool: Incumbent, climber: Climber, dual: Dual, graph: Graph, seed: int
) -> None:
    """Bounds on one thread, solutions on another; this one waits for both."""
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised again by the caller
            failed.append(error)
            pool.stopped = True

    def bounds() -> None:
        _raise_bounds(pool, dual, climber)
        Climber(pool, graph, seed + 1).run()

    threads = [
        threading.Thread(target=guarded, args=(work,), daemon=True)
        for work in (climber.run, bounds)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.05)
    finally:
        pool.stopped = True
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _raise_bounds(pool: Incumbent, dual: Dual, climber: Climber) -> None:
    """Ascend at growing caps; what the multipliers suggest, the climber tries."""
    for work in _WORK:
        if work > _WORK[0]:
            tighter = dual.tightened(work)
            if not dual.is_split or tighter.num_kept == dual.num_kept:
                continue
            dual = tighter
        for _ in range(_ASCENTS):
            gain = -dual.best
            ascend(dual, 50)
            if pool.is_over:
                return
            climber.suggest(dual.decode(), dual.row_prices)
            gain += dual.best
            if gain < 1e-7 * abs(dual.best):
                break


def _penalty(kernel: Kernel) -> float:
    """More than any allowed solution can cost beyond any other."""
    costs, tables = kernel.costs, kernel.tables
    return 10 * float(np.abs(costs).sum() + np.abs(tables[tables < np.inf]).sum()) + 1
