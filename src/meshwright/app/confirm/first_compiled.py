"""The best of several plans that the machine's real compiler accepts.

A compiler rejects a plan if it fails, or if the step needs too much memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from meshwright.app.confirm.confirmation import confirm_placed
from meshwright.app.record.plan_record import PlanRecord
from meshwright.errors import CompilerError, PlanError
from meshwright.machine.memory_size import show_bytes
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.search_result import REJECTED, SearchResult

_MOST = 5
"""Most plans that are compiled, each for up to some minutes, before the search fails."""

_TIMEOUT_S = 600.0
"""Longest time for the compilation of one plan."""


def first_that_compiles[P: PlanRecord](
    search: SearchResult,
    make_plan: Callable[[Candidate], P],
    on_progress: Callable[[str], None],
) -> tuple[P, SearchResult]:
    """The best plan that the compiler accepts, and the search with that plan first.

    Plans are compiled in the order of the search. If the compiler fails for a plan, or
    needs more memory than allowed, the plan gets the reason as `why_not`, and the next plan
    is tried. Raises `PlanError` with all reasons if none of the best `_MOST` plans is
    accepted.
    """
    rejected: list[Candidate] = []
    fitting = [c for c in search.candidates if c.fits]
    for candidate in _distinct(fitting)[:_MOST]:
        on_progress(f"compiling {candidate.name} on {candidate.mesh}")
        plan = make_plan(candidate)
        why_not = _why_not(plan, search.limit_bytes)
        if not why_not:
            return plan, _moved_first(search, candidate, rejected)
        on_progress(f"{candidate.name} on {candidate.mesh}: {why_not}")
        rejected.append(replace(candidate, why_not=why_not))
    reasons = "\n".join(f"  {c.name} on {c.mesh}: {c.why_not}" for c in rejected)
    raise PlanError(
        f"the compiler accepts none of the {len(rejected)} best plans; search with "
        f"confirm=False to get the best one all the same:\n{reasons}"
    )


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates without duplicates: those with equal mesh and tactics are one."""
    return list({(c.mesh, c.tactics): c for c in reversed(candidates)}.values())[::-1]


def _why_not(plan: PlanRecord, limit_bytes: float) -> str:
    """The reason why a compiled plan cannot be used; "" if it can."""
    try:
        compiled = confirm_placed(plan, False, _TIMEOUT_S, None).compiled
    except CompilerError as error:
        return f"{REJECTED}{error}"
    if compiled.fits and compiled.peak_bytes <= limit_bytes:
        return ""
    needed, allowed = show_bytes(compiled.peak_bytes), show_bytes(limit_bytes)
    return f"{REJECTED}it needs {needed} per device, and {allowed} are allowed"


def _moved_first(
    search: SearchResult, accepted: Candidate, rejected: Sequence[Candidate]
) -> SearchResult:
    """The search result with the accepted plan first and the rejected plans last.

    If plans were rejected, the lower bound is removed, since it belongs to the predicted
    best plan.
    """
    refused = [(c.name, c.mesh, c.tactics) for c in rejected]
    others = [
        c
        for c in search.candidates
        if c is not accepted and (c.name, c.mesh, c.tactics) not in refused
    ]
    found = replace(search, candidates=(accepted, *others, *rejected), is_compiled=True)
    return replace(found, model_s=0.0, bound_s=0.0) if rejected else found
