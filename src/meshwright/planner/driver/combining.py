"""Trials of plans with small collectives combined, if the compiler leaves them apart.

A plan of many small collectives may be the fastest once they are combined, and slow
before. So the plans that would be fast without the seconds of these collectives are
simulated again with the tactic `overlap(axis, products=False, combine_bytes=...)`.
"""

from collections.abc import Sequence

from meshwright.machine import Machine
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.driver.state import SearchState
from meshwright.planner.overlap.overlap import Overlap, overlap
from meshwright.predict.compilers.targets import compiler_of

COMBINED = ", combined"
"""Suffix of the name of a plan whose small collectives are combined."""

_TRIED = 3
"""Number of plans that are simulated a second time, with combined collectives."""

_BUCKETS = (512, 64, 8)
"""Bucket sizes to try, as multiples of the bytes that a link moves during its latency.

A bucket is a group of small collectives combined into one. In a bucket of the smallest
size, the latency takes about a ninth of the time.
"""


def combine(state: SearchState) -> None:
    """Simulate the most promising plans once more, with small collectives combined.

    All are tried with the largest bucket size. Smaller sizes are tried for the best
    plan, as long as they make it faster.
    """
    machine = state.task.space.machine
    kinds = compiler_of(machine).uncombined
    if not kinds or not state.trials.has_fitting:
        return
    largest, *smaller = bucket_sizes(machine)
    better: list[tuple[Candidate, Candidate]] = []
    for apart in _promising(state, kinds):
        if not state.budget.has_time(1):
            break
        tried = _simulate(state, apart, largest)
        if tried is state.trials.best():
            better.append((apart, tried))
    if not better:
        return
    apart, _ = better[-1]
    for size in smaller:
        if not state.budget.has_time(1):
            break
        if _simulate(state, apart, size) is not state.trials.best():
            break


def bucket_sizes(machine: Machine) -> list[int]:
    """Largest bytes of a combined collective to try on a machine, the largest first."""
    level = machine.levels[-1]
    least = max(1, round(level.latency_s * level.link_bytes_per_s))
    return [1 << (times * least - 1).bit_length() for times in _BUCKETS]


def _promising(state: SearchState, kinds: frozenset[str]) -> Sequence[Candidate]:
    """Simulated plans that may become the best once their collectives are combined.

    They are ordered by their step time without the time of collectives of `kinds`.
    """
    best = state.trials.best()
    assert best is not None
    given = state.task.space.given

    def rest_s(candidate: Candidate) -> float:
        return candidate.step_time_s - sum(
            seconds
            for name, seconds in candidate.breakdown
            if name.removesuffix(" exposed") in kinds
        )

    found = [
        c
        for c in state.trials.candidates
        if not c.why_not
        and c.tactics[: len(given)] == given
        and rest_s(c) < min(c.step_time_s, best.step_time_s)
    ]
    return sorted(found, key=rest_s)[:_TRIED]


def _simulate(state: SearchState, apart: Candidate, size: int) -> Candidate:
    """Simulate a plan with collectives along each axis combined up to `size` bytes."""
    own = apart.tactics[len(state.task.space.given) :]
    more = [overlap(a, products=False, combine_bytes=size) for a in apart.mesh.axes]
    name = apart.name + COMBINED
    return state.trials.simulate(name, apart.mesh, (*own, *more))


def without_combining(state: SearchState, candidate: Candidate) -> Candidate:
    """The plan from which a plan with combined collectives was made.

    Any other plan is returned unchanged.
    """
    if not candidate.name.endswith(COMBINED):
        return candidate
    tactics = tuple(t for t in candidate.tactics if not _combines(t))
    return next(
        (
            c
            for c in state.trials.candidates
            if (c.mesh, c.tactics) == (candidate.mesh, tactics)
        ),
        candidate,
    )


def _combines(tactic: object) -> bool:
    return isinstance(tactic, Overlap) and not tactic.products
