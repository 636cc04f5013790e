"""A search, and again with less kept for the backward pass where that helps."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.candidates.proposal import counts_memory
from meshwright.planner.driver.search import Searcher
from meshwright.planner.recompute.saved_values import recompute_within
from meshwright.planner.solve.optimum import Choices
from meshwright.planner.solve.space import Space

_MOST = 4
"""Times that less is kept where nothing fits."""

_STRETCH = 1 / 32
"""Share of the memory that may be made again at once."""

_AIM = 0.97
"""Share of the memory that a changed program's plans are to take, by the model."""

_SPARE = _AIM - _STRETCH
"""The same of what is kept and all else; what is made again at once takes some as well."""

_WORTHWHILE = 0.01
"""Share of a step that has to be saved for a program to be changed though plans fit."""

_SIMULATIONS = 4
"""Simulations' worth of time that it takes at least to search a changed program."""

_FOR_CHANGED = 0.3
"""Share of the time for the changed program where that promises so much."""


def search(searcher: Searcher, with_experts: bool) -> Searcher:
    """Run a search, and those that follow; they share their candidates.

    Where memory is in the way of a better plan, it is tried with less kept; where
    nothing fits at all, with ever less.
    """
    freed: list[tuple[Mesh, Recompute]] = []

    def reserved(searcher: Searcher) -> float:
        left = searcher.until - searcher.clock()
        if _FOR_CHANGED * left < _SIMULATIONS * searcher.trials.longest_s:
            return 0.0
        freed.extend(_freed(searcher))
        left = searcher.until - searcher.clock()
        return _FOR_CHANGED * left if freed else 0.0

    ends = searcher.until
    searcher.reserved = reserved
    searcher.run(with_experts)
    searcher.until = ends
    if not searcher.trials.has_fitting:
        return _until_it_fits(searcher, with_experts)
    for mesh, tactic in freed:
        left = ends - searcher.clock()
        if searcher.is_interrupted or left < _SIMULATIONS * searcher.trials.longest_s:
            break
        changed = _changed(searcher, mesh, tactic)
        changed.run(with_experts)
        best = searcher.trials.best()
        if best is not None and tactic in best.tactics:
            return changed
        searcher.is_interrupted = changed.is_interrupted
    return searcher


def _freed(searcher: Searcher) -> Iterator[tuple[Mesh, Recompute]]:
    """What to make again so that the best plan of all fits, if that takes less time."""
    limit = searcher.limit
    best = min(
        searcher.programs.own.values(), key=lambda p: p.rank(limit, searcher.value_of)
    )
    free = {
        mesh: searcher.programs.priced[mesh].pricer.seconds(choices)
        for mesh, choices in searcher.programs.unlimited.items()
        if choices is not None
    }
    if not free or counts_memory(searcher.value_of, best):
        return
    mesh = min(free, key=lambda mesh: free[mesh])
    choices, wanted = (
        searcher.programs.unlimited[mesh],
        (1 - _WORTHWHILE) * best.seconds,
    )
    if choices is None or free[mesh] >= wanted:
        return
    held = searcher.programs.priced[mesh].pricer.memory_curve(choices)
    found = _less(searcher, mesh, choices, float(held.max()) - _SPARE * limit)
    if found is not None and free[mesh] + found[1] < wanted:
        yield mesh, found[0]


def _less(
    searcher: Searcher, mesh: Mesh, choices: Choices, too_many: float
) -> tuple[Recompute, float] | None:
    """`recompute_within` a plan on a mesh; None also where it cannot be said."""
    try:
        return recompute_within(
            searcher.programs.priced[mesh], choices, searcher.space.op_prices, too_many,
            _STRETCH * searcher.limit,
        )  # fmt: skip
    except MeshwrightError:  # no value waits, or sites cannot be told apart
        return None


def _until_it_fits(first: Searcher, with_experts: bool) -> Searcher:
    last = first
    spared = 0.0
    tried: set[Recompute] = set()
    while len(tried) < _MOST:
        smallest = last.trials.smallest()
        is_over = last.is_interrupted or last.clock() >= last.until
        if smallest is None or last.trials.has_fitting or is_over:
            break
        mesh, num_bytes = smallest
        found = None
        for _ in range(_MOST):  # until that is another program
            spared += num_bytes - _SPARE * last.limit
            found = _less(first, mesh, first.programs.own[mesh].choices, spared)
            if found is None or found[0] not in tried:
                break
        if found is None or found[0] in tried:
            break
        last.on_progress(f"keeping {spared / 2**30:.1f} GiB less")
        tried.add(found[0])
        last = _changed(first, mesh, found[0])
        last.run(with_experts)
    return last


def _changed(first: Searcher, mesh: Mesh, tactic: Recompute) -> Searcher:
    """The search of a changed program on one mesh."""
    space = first.space
    changed = Space(space.original, space.machine, space.seed, (tactic,))
    before = first.programs.priced[mesh].model, first.programs.own[mesh].choices
    return Searcher(
        changed, first.beside, (mesh,), first.limit, first.until, first.value_of,
        first.clock, first.on_progress, first.gather, candidates=first.candidates,
        before=before, aim=_AIM, num_before=len(first.programs.own),
        all_before=len(first.meshes),
    )  # fmt: skip
