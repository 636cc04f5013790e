"""A phase of a search that looks for ordinary tactics which give the best plan."""

from functools import partial

from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.proposal import FOUND
from meshwright.planner.candidates.search_result import Spelling
from meshwright.planner.driver.overlapping import without_overlap
from meshwright.planner.driver.state import SearchState
from meshwright.planner.solve.work_rates import SPELL
from meshwright.planner.spelling.spelling import spellings
from meshwright.planner.spelling.tactic_patterns import tactics_as_code

SPELLED = "auto, as tactics"
"""Name of a plan of an integer program that was written as ordinary tactics."""

_SPELLING = 3
"""Least time to find tactics that give a plan, as a multiple of a simulation's time."""

_AS_GOOD = 1.01
"""Ratio up to which a list of tactics is as good as the plan that it stands for.

It applies to step time and memory. No other list is tried then.
"""

_MOST_SPELLED = 1.2
"""Largest step time of a list of tactics that is reported.

It is relative to the plan that the list stands for.
"""


def write_as_tactics(state: SearchState) -> SearchState:
    """Search for ordinary tactics that give the best plan of an integer program.

    The tactics may also give a better plan. Reads the simulated plans. Writes `spelled`
    and the simulated plans.
    """
    trials, space = state.trials, state.task.space
    best = trials.best()
    wanted = None if best is None else without_overlap(state, best)
    if wanted is None or wanted.name != FOUND or not state.budget.has_time(_SPELLING):
        return state
    # A plan of the program before a rewrite has other given tactics.
    if (
        wanted.mesh not in state.task.meshes
        or wanted.tactics[:-1] != space.kept_tactics
    ):
        return state
    state.task.on_progress(f"writing {FOUND} on {wanted.mesh} as tactics")
    count = len(trials.candidates)
    spelled = _best_spelling(state, wanted)
    # The report lists only the final tactics, not the attempts before them.
    tactics = () if spelled is None else spelled.tactics
    trials.candidates[count:] = [
        c for c in trials.candidates[count:] if c.tactics == tactics
    ]
    state.spelled = spelled and Spelling(
        spelled.tactics,
        tactics_as_code(spelled.tactics),
        spelled.step_time_s,
        spelled.peak_memory_bytes,
    )
    return state


def _best_spelling(state: SearchState, wanted: Candidate) -> Candidate | None:
    """The best simulated list of tactics for a plan that an integer program found.

    `None` if all lists are much slower than the plan, or the time ends before the first.
    """
    trials, budget, space = state.trials, state.budget, state.task.space
    ends = budget.clock() + budget.left_s(1)
    start, work = space.start(wanted.mesh), space.start(wanted.mesh)
    wanted.tactics[-1].apply(work)
    note = partial(budget.count, SPELL)
    spelled: Candidate | None = None
    for tactics in spellings(work, start, lambda: budget.clock() >= ends, note):
        if budget.clock() >= ends:  # the list may lack tactics
            break
        tried = trials.simulate(SPELLED, wanted.mesh, tactics)
        if tried.why_not:
            continue
        if spelled is None or trials.order(tried) < trials.order(spelled):
            spelled = tried
        is_small = spelled.peak_memory_bytes <= _AS_GOOD * wanted.peak_memory_bytes
        if is_small and spelled.step_time_s <= _AS_GOOD * wanted.step_time_s:
            break
    if spelled is not None and spelled.step_time_s > _MOST_SPELLED * wanted.step_time_s:
        return None
    return spelled
