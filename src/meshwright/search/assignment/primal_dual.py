"""Large neighbourhood search and dual ascent together, in rounds or on two threads.

The first looks for better solutions, the second raises the lower bound; each uses the
results of the other.
"""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from meshwright.search.assignment.bounds.dual import DualBound, ascend, plan_of
from meshwright.search.assignment.bounds.message_passing import MIN_RISE, Messages
from meshwright.search.assignment.incumbent.incumbent import Incumbent
from meshwright.search.assignment.primal.improve import WHOLE, NeighbourhoodSearch
from meshwright.search.assignment.primal.priced_dives import PricedDives
from meshwright.search.assignment.solvers.proofs import prove

_SMALL = 20_000
"""Largest number of entries of all edge tables of a small problem.

A small problem is first searched on one thread.
"""

_MEDIUM = 1_000_000
"""Largest number of entries of all edge tables for which HiGHS runs.

HiGHS then has its own process.
"""

_FEW_ROWS = 2000
"""Largest number of memory constraints for which HiGHS runs."""

_SMALL_ROUNDS = 40
"""Rounds on one thread in which a small problem is searched first."""

_MAX_STALE = 4
"""Rounds in a row that hardly raise the bound, after which it is made tighter."""

_LEAST_WORK = 1e6
_WORK = {_LEAST_WORK: 0.4, 5e6: 0.7, 3e7: 1.0}
"""Limits on the work of bucket elimination in a Lagrangian bound, from coarse to fine.

A limit is a number of table entries. Each comes with the share of the solve's time
until which it is used.
"""

_LEAST_FACTOR = 0.005
"""Factor on Polyak's step length below which a Lagrangian relaxation has converged."""

_FIRST_SHARE = 0.3
"""Largest share of the time in which only the search for a first solution runs."""

_FIRST_DIVES, _DIVES_SHARE = 12, 0.5
"""Dives at prices of memory before other searches, and the share of time for more."""


def search_primal_dual(
    incumbent: Incumbent, messages: Messages, seed: int, rounds: int | None
) -> None:
    """Improve the best solution and the lower bound in turn, round by round.

    rounds: number of rounds; `None` to go on until the time is over.
    """
    if incumbent.is_over:
        return
    graph = messages.graph
    dives = None if rounds is not None else _first_dives(incumbent, messages)
    plan = plan_of(incumbent, graph, _LEAST_WORK)
    dual = DualBound(incumbent, plan, messages)
    if dives is not None:
        dual.row_prices = dives.row_prices.copy()
    incumbent.raise_bound(dual.evaluate())
    incumbent.offer(dual.decode())
    if incumbent.is_over:
        return
    primal = NeighbourhoodSearch(incumbent, graph, plan, seed)
    start = incumbent.start if incumbent.choices is None else incumbent.choices
    start = start if dives is None else dives.choices
    if start is not None:
        primal.start_from(start, dual.row_prices)
        primal.settle()
    if rounds is None:
        _search_by_time(incumbent, primal, dual, seed, dives)
    else:
        _search_by_rounds(incumbent, primal, dual, rounds)


def _first_dives(incumbent: Incumbent, messages: Messages) -> PricedDives | None:
    """A dozen dives at ever better prices of memory, fewer if time is short.

    `None` for problems of few nodes, and for those without memory rows.
    """
    num_movable = int((incumbent.reduced.widths > 1).sum())
    if num_movable <= WHOLE or not incumbent.memory.num_rows:
        return None
    clock, dives = incumbent.clock, PricedDives(incumbent, messages)
    ends_s = clock.elapsed_s + _FIRST_SHARE * clock.left_s
    for _ in range(_FIRST_DIVES):
        dives.step()
        if incumbent.is_over or clock.elapsed_s > ends_s:
            break
    return dives


def _search_by_time(
    incumbent: Incumbent,
    primal: NeighbourhoodSearch,
    dual: DualBound,
    seed: int,
    dives: PricedDives | None,
) -> None:
    """Search until the time is up: a small problem on one thread, then on several.

    A large problem is searched on several threads from the beginning.
    """
    graph, plan = primal.graph, primal.plan
    has_few_rows = incumbent.memory.num_rows <= _FEW_ROWS
    is_small = len(graph.tables) <= _SMALL and has_few_rows
    if is_small:
        _search_by_rounds(incumbent, primal, dual, _SMALL_ROUNDS)

    def raise_then_search() -> None:
        ends_s = clock.elapsed_s + _DIVES_SHARE * clock.left_s
        while dives is not None and clock.elapsed_s < ends_s:
            dives.step()
            if incumbent.is_over:
                return
            assert dives.choices is not None
            primal.suggest(dives.choices, dives.row_prices)
        while (
            primal.is_large
            and incumbent.cost == np.inf
            and clock.elapsed_s < _FIRST_SHARE * clock.budget_s
        ):
            time.sleep(0.02)  # leaves the cores to the primal search
            if incumbent.is_over:
                return
        _raise_bounds(incumbent, dual, primal)
        NeighbourhoodSearch(incumbent, graph, plan, seed + 1).run()

    clock = incumbent.clock
    if incumbent.is_over:
        return
    works = [primal.run, raise_then_search]
    if len(graph.tables) <= _MEDIUM and has_few_rows:
        works.append(partial(prove, incumbent))
    _run_threads(incumbent, works)


def _search_by_rounds(
    incumbent: Incumbent, primal: NeighbourhoodSearch, dual: DualBound, rounds: int
) -> None:
    """Alternate dual and primal steps for a number of rounds.

    A Lagrangian relaxation that has converged is replaced by a tighter one, whose
    elimination takes more work.
    """
    works, stale = iter(_WORK), 0
    next(works)
    for _ in range(rounds):
        before = incumbent.bound
        ascend(dual, 10)
        if incumbent.is_over:
            return
        primal.suggest(dual.decode(), dual.row_prices)
        primal.round()
        if incumbent.is_over:
            return
        is_stale = incumbent.bound < before + MIN_RISE * abs(before)
        stale = stale + 1 if is_stale else 0
        if stale > _MAX_STALE and (work := next(works, None)) is not None:
            tighter = dual.tightened(work)
            if tighter.num_kept < dual.num_kept:
                dual, stale = tighter, 0


def _run_threads(incumbent: Incumbent, works: Sequence[Callable[[], None]]) -> None:
    """Run each function on a thread of its own until the search is over."""
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised once more by the caller
            failed.append(error)
            incumbent.stopped = True

    threads = [
        threading.Thread(target=guarded, args=(work,), daemon=True) for work in works
    ]
    for thread in threads:
        thread.start()
    try:
        while not incumbent.is_over and any(thread.is_alive() for thread in threads):
            threads[0].join(0.02)
            time.sleep(0 if threads[0].is_alive() else 0.02)
    finally:
        incumbent.stopped = True
        for stop in incumbent.stops:
            stop()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _raise_bounds(
    incumbent: Incumbent, dual: DualBound, primal: NeighbourhoodSearch
) -> None:
    """Raise the lower bound with Lagrangian relaxations that become tighter.

    A tighter relaxation takes more work per step. The choices that each relaxation
    finds are suggested to the primal search.
    """
    for work, part in _WORK.items():
        tighter = dual if work == _LEAST_WORK else dual.tightened(work)
        if tighter is not dual and tighter.num_kept == dual.num_kept:
            continue
        dual = tighter
        until_s = part * incumbent.clock.budget_s
        while dual.factor > _LEAST_FACTOR and incumbent.clock.elapsed_s < until_s:
            ascend(dual, 50)
            if incumbent.is_over:
                return
            primal.suggest(dual.decode(), dual.row_prices)
