"""Solutions and bounds at once.

Messages first, then the core of the few choices that they say may be best, then all that
may still be better: by turns on one thread, or also on two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.search.arrays import Bools, Floats
from meshwright.search.assignment.bounds.dual import DualBound, ascend
from meshwright.search.assignment.bounds.messages import Messages
from meshwright.search.assignment.eliminate.order import plan_within
from meshwright.search.assignment.incumbent.incumbent import ROUNDING, Incumbent
from meshwright.search.assignment.incumbent.solution import (
    Clock,
    Progress,
    SolveOptions,
)
from meshwright.search.assignment.presolve.merge import merge_followers
from meshwright.search.assignment.presolve.presolve import merge, presolve, with_memory
from meshwright.search.assignment.primal.improve import NeighbourhoodSearch
from meshwright.search.assignment.primal.suggest import (
    RISE,
    looks_of,
    messages_of,
    offer_dive,
    pass_messages,
)
from meshwright.search.assignment.problem.assignment import Assignment
from meshwright.search.assignment.problem.memory_rows import memory_of
from meshwright.search.assignment.solvers.cp_sat_proof import CpSatProof
from meshwright.search.assignment.solvers.highs import HighsProof

_SMALL = 20_000  # pairs of choices up to which the search alternates on one thread
_ALTERNATIONS = 40
_STALE = 4  # alternations without gain before the threads start
_MEDIUM = 1_000_000  # the same, up to which HiGHS runs beside
_FEW_ROWS = 2000  # of memory, for CP-SAT and HiGHS
_LEAST_WORK = 1e6
_WORK = {_LEAST_WORK: 0.4, 5e6: 0.7, 3e7: 1.0}
"""Entries of all tables behind a bound, coarse to fine, and until which part of the time
each is used."""
_FINE = 0.005  # part of Polyak's step at which a relaxation gives no more
_FIRST = 0.3  # of the time, at most, for the first solution alone
_EARLY_LOOKS = 6
"""Looks at messages after which there is a dive into a core though more are to come: with
three, in the same 2 s, EfficientNet on 8 by 4 TPU v3 came to 10.5 ms, with six to 7.1."""
_CORE, _CORE_TURNS, _FOR_CORE, _CORE_BY_TURNS = 3e-4, 20, 0.3, 0.7
"""Of the bound, what a choice may cost more to be of the core: at three times as much
programs of the zoo are not eliminated exactly any more. Turns to search it, and of the
time that is left, as much at most; more of it where turns count."""


def run(
    problem: Assignment,
    clock: Clock,
    options: SolveOptions,
    seed: int,
    on_progress: Callable[[Progress], None] | None,
) -> tuple[Incumbent, Floats | None]:
    """What was found when time was up, all was proven, or Ctrl-C came; and was told."""
    pool = Incumbent(*merge(problem), clock, options, on_progress)
    told = None
    try:
        if options.start is not None:
            pool.begin_from(np.asarray(options.start))
        messages = messages_of(pool, options.messages)
        told = messages.net.told
        looks = looks_of(options)
        if pass_messages(pool, messages, min(_EARLY_LOOKS, looks)):
            _search_core(pool, problem, messages, seed, 0)
            pass_messages(pool, messages, looks - _EARLY_LOOKS)
        _search_core(pool, problem, messages, seed, _CORE_TURNS)
        if not pool.is_over:
            rounding = ROUNDING * abs(pool.cost)
            _, excess = messages.decode()
            kept = messages.bound + excess <= pool.cost + rounding
            pool = _narrowed(pool, problem, kept)
            messages = messages_of(pool)
            pass_messages(pool, messages, looks)
            offer_dive(pool, messages)
            _search(pool, messages, seed, options.rounds)
    except KeyboardInterrupt:
        pool.stopped = True
    return pool, told


def _search_core(
    pool: Incumbent, problem: Assignment, messages: Messages, seed: int, turns: int
) -> None:
    """Solutions of choices alone that messages say may be among the very best.

    turns: of a search, which follows a dive.
    """
    if pool.is_over or pool.memory.num_rows:
        return
    _, excess = messages.decode()
    kept = excess <= _CORE * abs(messages.bound)
    if pool.choices is not None:
        kept[pool.reduced.starts[:-1] + pool.choices] = True
    reduced = None if kept.all() else merge_followers(pool.reduced, kept)
    if reduced is None:  # the core is all there is, or has no solution
        return
    by_turns = pool.options.rounds is not None
    looks = looks_of(pool.options)
    share = _CORE_BY_TURNS if by_turns else _FOR_CORE
    part_s = pool.clock.elapsed_s + share * pool.clock.left_s
    clock = Clock(pool.clock.start_s, part_s)
    core = Incumbent(reduced, memory_of(problem, reduced), clock, pool.options, None)
    try:
        best = pool.lifted()
        if best is not None:
            core.begin_from(best)
        inner = messages_of(core)
        pass_messages(core, inner, looks)
        offer_dive(core, inner)
        if turns:
            most = (
                turns
                if pool.options.rounds is None
                else min(pool.options.rounds, turns)
            )
            _search(core, inner, seed, most)
    finally:
        found = core.lifted()
        if found is not None:
            pool.offer(pool.reduced.nearest(found))


def _narrowed(pool: Incumbent, problem: Assignment, kept: Bools) -> Incumbent:
    """The same search with no other choices than these.

    By turns nothing more is presolved: to find what is dominated takes longer than
    most problems do, once the core is known.
    """
    reduced = merge_followers(pool.reduced, kept)
    finish = presolve if pool.options.rounds is None else with_memory
    try:
        return pool.narrowed(*finish(problem, reduced))
    except AssignmentError:
        if pool.choices is None:
            raise
        pool.raise_bound(pool.cost)
        return pool


def _search(pool: Incumbent, messages: Messages, seed: int, turns: int | None) -> None:
    """By turns; else alternate while that is quick, then search on two threads."""
    if pool.is_over:
        return
    graph = messages.graph
    plan = plan_within(graph, _LEAST_WORK, pool.has_ended)
    dual = DualBound(pool, graph, plan, messages)
    pool.raise_bound(dual.evaluate())
    pool.offer(dual.decode())
    if pool.is_over:
        return
    climber = NeighbourhoodSearch(pool, graph, plan, seed)
    start = pool.start if pool.choices is None else pool.choices
    if start is not None:
        climber.start_from(start, dual.row_prices)
        climber.settle()
    if turns is None:
        _search_by_time(pool, climber, dual, seed)
    else:
        _take_turns(pool, climber, dual, turns)


def _search_by_time(
    pool: Incumbent, climber: NeighbourhoodSearch, dual: DualBound, seed: int
) -> None:
    """Until the time is up."""
    graph, plan = climber.graph, climber.plan
    has_few_rows = pool.memory.num_rows <= _FEW_ROWS
    is_small = len(graph.tables) <= _SMALL and has_few_rows
    if is_small:
        _alternate(pool, climber, dual)

    def bounds() -> None:
        while (
            climber.is_large
            and pool.cost == np.inf
            and clock.elapsed_s < _FIRST * clock.budget_s
        ):
            time.sleep(0.02)  # until something fits, the other thread has the machine
            if pool.is_over:
                return
        _raise_bounds(pool, dual, climber)
        NeighbourhoodSearch(pool, graph, plan, seed + 1).run()

    clock = pool.clock
    if pool.is_over:
        return
    if is_small and _is_whole(pool):
        proof = CpSatProof(pool, seed)
        pool.stops.append(proof.stop)
        _search_both(pool, (climber.run, proof.run))
    elif len(graph.tables) <= _MEDIUM and has_few_rows:
        program = HighsProof(pool)
        pool.stops.append(program.stop)
        _search_both(pool, (climber.run, bounds, program.run))
    else:
        _search_both(pool, (climber.run, bounds))


def _alternate(pool: Incumbent, climber: NeighbourhoodSearch, dual: DualBound) -> None:
    """By turns on one thread, the same each time, as long as anything is gained."""
    stale = 0
    for _ in range(_ALTERNATIONS):
        before = pool.cost, pool.bound
        ascend(dual, 30)
        if pool.is_over:
            return
        climber.start_from(dual.decode(), dual.row_prices)
        climber.settle()
        climber.round()
        stale = stale + 1 if before == (pool.cost, pool.bound) else 0
        if stale > _STALE:
            return


def _take_turns(
    pool: Incumbent, climber: NeighbourhoodSearch, dual: DualBound, turns: int
) -> None:
    """Search and raise the bound by turns; larger tables once smaller give no more."""
    works, stale = iter(_WORK), 0
    next(works)
    for _ in range(turns):
        before = pool.bound
        ascend(dual, 10)
        if pool.is_over:
            return
        climber.suggest(dual.decode(), dual.row_prices)
        climber.round()
        if pool.is_over:
            return
        stale = stale + 1 if pool.bound < before + RISE * abs(before) else 0
        if stale > _STALE and (work := next(works, None)) is not None:
            tighter = dual.tightened(work)
            if tighter.num_kept < dual.num_kept:
                dual, stale = tighter, 0


def _is_whole(pool: Incumbent) -> bool:
    """Whether CP-SAT can count memory, in whole numbers and few rows."""
    excess = pool.memory.segments.excess
    return bool(
        np.all(excess == np.round(excess)) and pool.memory.num_rows <= _FEW_ROWS
    )


def _search_both(pool: Incumbent, works: Sequence[Callable[[], None]]) -> None:
    """Run each on a thread of its own until all is over; this thread waits."""
    failed: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised again by the caller
            failed.append(error)
            pool.stopped = True

    threads = [
        threading.Thread(target=guarded, args=(work,), daemon=True) for work in works
    ]
    for thread in threads:
        thread.start()
    try:
        while not pool.is_over and any(thread.is_alive() for thread in threads):
            threads[0].join(0.02)
            time.sleep(0 if threads[0].is_alive() else 0.02)
    finally:
        pool.stopped = True
        for stop in pool.stops:
            stop()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _raise_bounds(
    pool: Incumbent, dual: DualBound, climber: NeighbourhoodSearch
) -> None:
    """Ascend at growing caps; what the multipliers suggest, the climber tries."""
    for work, part in _WORK.items():
        tighter = dual if work == _LEAST_WORK else dual.tightened(work)
        if tighter is not dual and tighter.num_kept == dual.num_kept:
            continue
        dual = tighter
        until_s = part * pool.clock.budget_s
        while dual.factor > _FINE and pool.clock.elapsed_s < until_s:
            ascend(dual, 50)
            if pool.is_over:
                return
            climber.suggest(dual.decode(), dual.row_prices)
