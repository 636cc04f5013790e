"""A table of the plans that a search simulated, each compared with the best."""

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten

from meshwright.app.output.collapse import group_by
from meshwright.app.output.numbers import show_seconds, show_share
from meshwright.app.output.table import Table
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.candidates.candidate import Candidate, differences
from meshwright.planner.candidates.search_result import REJECTED, SearchResult
from meshwright.predict.simulate.timeline import COMPUTE

TITLES = ("plan", "mesh", ">step", ">times", ">memory", "compared with the first")
"""Column titles of the table of plans that a search simulated."""

_REASON = 76
"""Most characters of the reason why a plan is not possible."""

_MOST = 3
"""Most differences that are shown for a plan."""

_JOINED = 3
"""Most names of equal plans, or meshes of these, that a row shows."""

_WORTH = 0.1
"""Least size of a difference that is shown, as a share of the largest one."""


def candidate_table(search: SearchResult) -> Table:
    """A table of the simulated plans, the best first.

    Plans of equal time and memory are one row. So are the strategies that do not apply.
    """
    best = search.candidates[0]
    groups = group_by(search.candidates, _figures)
    refused = groups.pop(None, [])
    rows = [_cells(plans, best) for plans in groups.values()]
    return Table(TITLES, (*rows, *_refused(refused)))


def won_text(search: SearchResult) -> str:
    """A sentence that says which plan won, and by how much."""
    best = search.candidates[0]
    others = (c for c in search.candidates if c.fits and _figures(c) != _figures(best))
    second = next(others, None)
    memory = show_bytes(best.peak_memory_bytes)
    text = (
        f"{best.name}{_rewritten(best)} on {best.mesh} won: "
        f"{show_seconds(best.step_time_s)} a step, "
        f"{memory} of {show_bytes(best.limit_bytes)} on each device"
    )
    if second is None:
        return text
    slower = second.step_time_s / best.step_time_s - 1
    how = f"{show_share(slower)} slower" if slower > 0 else "larger"
    name = second.name + _rewritten(second)
    return f"{text}; the next is {name} on {second.mesh}, {how}"


def _figures(candidate: Candidate) -> tuple[str, int] | None:
    """Equal for plans of equal time and memory; `None` for a plan that is not possible.

    The sum of equal times may differ in its last digits.
    """
    if candidate.why_not:
        return None
    seconds, num_bytes = candidate.step_time_s, candidate.peak_memory_bytes
    return f"{seconds:.6e}{_rewritten(candidate)}", num_bytes


def _refused(plans: Sequence[Candidate]) -> Iterator[tuple[str, ...]]:
    """A row for the strategies that do not apply, and one for each rejected plan."""
    rejected = [plan for plan in plans if plan.why_not.startswith(REJECTED)]
    for plan in rejected:
        yield plan.name, str(plan.mesh), "-", "-", "-", _reason(plan)
    reasons = group_by((p for p in plans if p not in rejected), _reason)
    texts = [
        f"{', '.join(dict.fromkeys(plan.name for plan in own))}: {why}"
        for why, own in reasons.items()
    ]
    if texts:
        yield "do not apply", "", "-", "-", "-", "; ".join(texts)


def _reason(plan: Candidate) -> str:
    """The start of the reason why a plan is not possible, without names of axes."""
    first = re.split(r"[:;] ", plan.why_not.removeprefix(REJECTED))[0]
    first = re.sub(r"\([^()]*'[^()]*\)", "", first)
    return shorten(first, _REASON, placeholder=" ...")


def _joined(word: str, texts: Iterable[str]) -> str:
    """The distinct texts; of more than three, the first and a count."""
    first, *others = dict.fromkeys(texts)
    if len(others) >= _JOINED:
        return f"{first} and {len(others)} more"
    return word.join([first, *others])


def _rewritten(plan: Candidate) -> str:
    """Text after a plan's name, if it recomputes more than the program does."""
    is_rewritten = any(isinstance(tactic, Recompute) for tactic in plan.tactics)
    return ", recomputing" if is_rewritten else ""


def _cells(plans: Sequence[Candidate], best: Candidate) -> tuple[str, ...]:
    """The row of plans with equal figures."""
    candidate = plans[0]
    seconds, ratio = candidate.step_time_s, candidate.step_time_s / best.step_time_s
    return (
        _joined(" = ", (plan.name for plan in plans)) + _rewritten(candidate),
        _joined(" or ", (str(plan.mesh) for plan in plans)),
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
