"""Checks of the options that `autoplan` and `auto` share."""

import math
from typing import Any

from meshwright.planner.candidates.search_result import SEARCHES

_SEEDS = 2**31
"""Number of allowed seeds: those that a signed 32-bit integer holds."""


def wrong_option(search: Any, budget_s: Any, seed: Any, on_progress: Any) -> str | None:
    """The first error in the options of a search, as a sentence.

    `None` if all are right.
    """
    if search not in SEARCHES:
        return f"search is {search!r}; wanted one of {', '.join(SEARCHES)}"
    is_number = isinstance(budget_s, int | float) and not isinstance(budget_s, bool)
    if not is_number or not 0 < budget_s < math.inf:
        return f"budget_s is {budget_s!r}; wanted seconds above 0"
    is_whole = isinstance(seed, int) and not isinstance(seed, bool)
    if not is_whole or not 0 <= seed < _SEEDS:
        return f"seed is {seed!r}; wanted a whole number from 0 to {_SEEDS - 1}"
    if on_progress is not None and not callable(on_progress):
        return f"on_progress is {on_progress!r}; wanted a function of a line of text"
    return None
