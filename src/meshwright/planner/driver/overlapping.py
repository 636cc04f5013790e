"""Phases of a search that combine small collectives, or run loops beside products.

A plan of many small collectives may be the fastest once they are combined, and slow
before; a plan that waits for gathers may be the fastest once they run beside products.
So the plans that would be fast without the seconds of these collectives are simulated
again: with `overlap(axis, products=False, combine_bytes=...)` if the compiler leaves
small collectives apart, and with `overlap(axis)` if it runs permutes beside products.
"""

from collections.abc import Sequence

from meshwright.machine import Machine
from meshwright.partitioner.decide import apply_tactics
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.driver.state import SearchState
from meshwright.planner.overlap.loop_search import LoopSearch
from meshwright.planner.overlap.overlap import Overlap, overlap
from meshwright.planner.solve.work_rates import SIMULATE
from meshwright.predict.compilers.targets import compiler_of

COMBINED = ", combined"
"""Suffix of the name of a plan whose small collectives are combined."""

OVERLAPPED = ", overlapped"
"""Suffix of the name of a plan with product loops."""

_TRIED = 3
"""Number of plans that are simulated a second time, with overlapped collectives."""

_LOOPED = frozenset({"all_gather", "reduce_scatter"})
"""Kinds of collectives that may become product loops."""

_LEAST_SHARE = 0.01
"""Share of a step's time that must be waited for, so that product loops are tried.

Loops save a part of this time. The searches for them simulate a step several times.
"""

_SIMULATED = 3
"""Least time to search for the loops of a plan, as a multiple of a simulation's time."""

_BUCKETS = (512, 64, 8)
"""Bucket sizes to try, as multiples of the bytes that a link moves during its latency.

A bucket is a group of small collectives combined into one. In a bucket of the smallest
size, the latency takes about a ninth of the time.
"""


def combine_collectives(state: SearchState) -> SearchState:
    """Simulate the most promising plans once more, with small collectives combined.

    All are tried with the largest size of a combined collective. Smaller sizes are
    tried for the best plan, as long as they make it faster. Reads and writes the
    simulated plans.
    """
    machine, trials, budget = state.task.space.machine, state.trials, state.budget
    kinds = compiler_of(machine).uncombined
    if not kinds or not trials.has_fitting:
        return state
    largest, *smaller = bucket_sizes(machine)
    fastest: Candidate | None = None  # the latest plan that became the best
    for plan in _promising(state, kinds)[:_TRIED]:
        if not budget.has_time(1):
            break
        if _simulate_combined(state, plan, largest) is trials.best():
            fastest = plan
    if fastest is None:
        return state
    for size in smaller:
        if not budget.has_time(1):
            break
        if _simulate_combined(state, fastest, size) is not trials.best():
            break
    return state


def bucket_sizes(machine: Machine) -> list[int]:
    """Largest bytes of a combined collective to try on a machine, the largest first."""
    level = machine.levels[-1]
    least = max(1, round(level.latency_s * level.link_bytes_per_s))
    return [1 << (times * least - 1).bit_length() for times in _BUCKETS]


def overlap_products(state: SearchState) -> SearchState:
    """Simulate the most promising plans once more, with product loops.

    A plan is only recorded if loops make it faster. Plans that were tried already are
    left out, so that this may run again when there are more plans. Reads and writes the
    simulated plans and `looped`.
    """
    machine = state.task.space.machine
    if "permute" not in compiler_of(machine).async_collectives:
        return state
    if not state.trials.has_fitting:
        return state
    untried = [
        c
        for c in _promising(state, _LOOPED, _LEAST_SHARE)
        if c not in state.looped and not c.name.endswith(OVERLAPPED)
    ]
    for plan in untried[:_TRIED]:
        if not state.budget.has_time(_SIMULATED):
            break
        state.looped.append(plan)
        loops = _loops_of(state, plan)
        if loops:
            tactics = (*_searched_tactics(state, plan), *loops)
            state.trials.simulate(plan.name + OVERLAPPED, plan.mesh, tactics)
    return state


def _loops_of(state: SearchState, plan: Candidate) -> Sequence[Overlap]:
    """The tactics whose product loops make a simulated plan faster."""
    space, budget = state.task.space, state.budget
    num_nodes = len(space.graph.nodes)
    work = apply_tactics(space.original, plan.mesh, plan.tactics, graph=space.graph)
    search = LoopSearch(
        space.machine,
        lambda: budget.has_time(_SIMULATED),
        lambda: budget.count(SIMULATE, num_nodes),
    )
    return search.tactics(work)


def _searched_tactics(state: SearchState, plan: Candidate) -> Sequence[Tactic]:
    """The tactics of a simulated plan after those that every plan begins with."""
    return plan.tactics[len(state.task.space.kept_tactics) :]


def _promising(
    state: SearchState, kinds: frozenset[str], least_share: float = 0.0
) -> Sequence[Candidate]:
    """Simulated plans that may become the best if collectives of `kinds` take no time.

    They are ordered by their step time without the time of these collectives.
    least_share: least share of the step time that these collectives take.
    """
    best = state.trials.best()
    assert best is not None
    kept_tactics = state.task.space.kept_tactics

    def rest_s(candidate: Candidate) -> float:
        return candidate.step_time_s - sum(
            seconds
            for name, seconds in candidate.breakdown
            if name.removesuffix(" exposed") in kinds
        )

    promising = [
        c
        for c in state.trials.candidates
        if c.fits
        and c.tactics[: len(kept_tactics)] == kept_tactics
        and rest_s(c) < best.step_time_s
        and rest_s(c) < (1 - least_share) * c.step_time_s
    ]
    return sorted(promising, key=rest_s)


def _simulate_combined(state: SearchState, plan: Candidate, size: int) -> Candidate:
    """Simulate a plan with collectives along each axis combined up to `size` bytes."""
    more = [overlap(a, products=False, combine_bytes=size) for a in plan.mesh.axes]
    tactics = (*_searched_tactics(state, plan), *more)
    return state.trials.simulate(plan.name + COMBINED, plan.mesh, tactics)


def without_overlap(state: SearchState, candidate: Candidate) -> Candidate:
    """The plan from which a plan with combined collectives or product loops was made.

    Any other plan is returned unchanged.
    """
    if not candidate.name.endswith((COMBINED, OVERLAPPED)):
        return candidate
    searched = _searched_tactics(state, candidate)
    num_kept = len(candidate.tactics) - len(searched)
    others = (t for t in searched if not isinstance(t, Overlap))
    tactics = (*candidate.tactics[:num_kept], *others)
    return next(
        (
            c
            for c in state.trials.candidates
            if (c.mesh, c.tactics) == (candidate.mesh, tactics)
        ),
        candidate,
    )
