"""A table of the plans that a search simulated, each compared with the best."""

import re
from textwrap import shorten

from meshwright.app.output.numbers import show_seconds
from meshwright.app.output.table import Table
from meshwright.machine.memory_size import show_bytes
from meshwright.planner.candidates.candidate import Candidate, differences
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.predict.simulate.timeline import COMPUTE

TITLES = ("plan", "mesh", ">step", ">times", ">memory", "compared with the first")
"""Column titles of the table of plans that a search simulated."""

_REASON = 76
"""Most characters of the reason why a plan is not possible."""

_MOST = 3
"""Most differences that are shown for a plan."""

_WORTH = 0.1
"""Least size of a difference that is shown, as a share of the largest one."""


def candidate_table(search: SearchResult) -> Table:
    """A table with one row for each simulated plan, the best first."""
    best = search.candidates[0]
    return Table(TITLES, tuple(_cells(each, best) for each in search.candidates))


def _cells(candidate: Candidate, best: Candidate) -> tuple[str, ...]:
    mesh = str(candidate.mesh)
    if candidate.why_not:
        first = re.split(r"[:;] ", candidate.why_not)[0]
        reason = shorten(first, _REASON, placeholder=" ...")
        return candidate.name, mesh, "-", "-", "-", reason
    seconds, ratio = candidate.step_time_s, candidate.step_time_s / best.step_time_s
    return (
        candidate.name,
        mesh,
        show_seconds(seconds),
        f"{ratio:.2f}",
        show_bytes(candidate.peak_memory_bytes),
        _difference(candidate, best),
    )


def _difference(candidate: Candidate, best: Candidate) -> str:
    """Text on how a plan differs from the best plan.

    It has the memory that the plan lacks, or else its largest differences in seconds.
    """
    num_bytes = candidate.peak_memory_bytes
    if not candidate.fits:
        over, allowed = (
            show_bytes(size)
            for size in (num_bytes - candidate.limit_bytes, candidate.limit_bytes)
        )
        return f"does not fit: {over} more than {allowed}"
    changes = differences(candidate, best)
    worth = [(w, s) for w, s in changes if s and abs(s) >= _WORTH * abs(changes[0][1])]
    parts = [_signed(show_seconds(abs(s)), s, _word(w)) for w, s in worth[:_MOST]]
    is_slower = candidate.step_time_s > best.step_time_s
    if not is_slower and num_bytes != best.peak_memory_bytes:
        more = num_bytes - best.peak_memory_bytes
        parts.insert(0, _signed(show_bytes(abs(more)), more, "memory"))
    return ", ".join(parts)


def _signed(amount: str, sign: float, word: str) -> str:
    return f"{'+' if sign > 0 else '-'}{amount} {word}"


def _word(name: str) -> str:
    """A readable name for an entry of a time breakdown.

    For example `all-reduce` for the entry "all_reduce exposed".
    """
    if name == COMPUTE:
        return "computing"
    return name.removesuffix(" exposed").replace("_", "-")
