"""The result of a search as text: a table of the plans, and the lines below it."""

from __future__ import annotations

import re
from textwrap import indent, shorten

from rich.table import Table

from meshwright.app.output.numbers import show_seconds
from meshwright.planner.candidates.candidate import Candidate, differences
from meshwright.planner.candidates.search_result import SearchResult, Spelling
from meshwright.predict.simulate.timeline import COMPUTE

_REASON = 76
"""Letters of the reason why a plan is not possible."""

_MOST, _WORTH = 3, 0.1
"""Number of differences shown, and the share of the largest that each has to reach."""


def search_table(search: SearchResult) -> Table:
    """A row for each simulated plan, the best first, compared with the best."""
    table = Table(box=None, pad_edge=False)
    for name in ("plan", "mesh"):
        table.add_column(name)
    for name in ("step", "times", "memory"):
        table.add_column(name, justify="right")
    table.add_column("compared with the first")
    best = search.candidates[0]
    for candidate in search.candidates:
        table.add_row(*_cells(candidate, best, search.limit_bytes))
    return table


def _cells(candidate: Candidate, best: Candidate, limit: float) -> tuple[str, ...]:
    mesh = str(candidate.mesh)
    if candidate.why_not:
        first = re.split(r"[:;] ", candidate.why_not)[0]
        reason = shorten(first, _REASON, placeholder=" ...")
        return candidate.name, mesh, "-", "-", "-", reason
    seconds, ratio = candidate.step_time_s, candidate.step_time_s / best.step_time_s
    return (
        candidate.name,
        mesh,
        f"{seconds * 1e3:.2f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.2f} µs",
        f"{ratio:.2f}",
        show_gib(candidate.peak_memory_bytes),
        _difference(candidate, best, limit),
    )


def _difference(candidate: Candidate, best: Candidate, limit: float) -> str:
    """The memory that a plan lacks, or the largest differences of its step's seconds."""
    num_bytes = candidate.peak_memory_bytes
    if not candidate.fits(limit):
        over, allowed = show_gib(num_bytes - limit), show_gib(limit)
        return f"does not fit: {over} more than {allowed}"
    found = differences(candidate, best)
    worth = [(w, s) for w, s in found if s and abs(s) >= _WORTH * abs(found[0][1])]
    parts = [_signed(show_seconds(abs(s)), s, _word(w)) for w, s in worth[:_MOST]]
    is_slower = candidate.step_time_s > best.step_time_s
    if not is_slower and num_bytes != best.peak_memory_bytes:
        more = num_bytes - best.peak_memory_bytes
        parts.insert(0, _signed(show_gib(abs(more)), more, "memory"))
    return ", ".join(parts)


def _signed(amount: str, sign: float, word: str) -> str:
    return f"{'+' if sign > 0 else '-'}{amount} {word}"


def _word(name: str) -> str:
    """`all-reduce` for the entry "all_reduce exposed" of a breakdown."""
    if name == COMPUTE:
        return "computing"
    return name.removesuffix(" exposed").replace("_", "-")


def show_gib(num_bytes: float) -> str:
    """`3.2 GiB`, in MiB or KiB if it is less than one."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes / 2**10:.1f} KiB"


def spelled_text(spelled: Spelling, best: Candidate) -> str:
    """The plan of the integer program as ordinary tactics, with their simulated figures."""
    ratio = spelled.step_time_s / best.step_time_s
    memory = show_gib(spelled.peak_memory_bytes)
    figures = f"{ratio:.2f} times the step time of the first plan, {memory}"
    if not spelled.text:
        return f"as tactics ({figures}): none; nothing is partitioned"
    return f"as tactics ({figures}):\n{indent(spelled.text, '  ')}"


def search_text(search: SearchResult) -> str:
    """The duration of a search, its lower bound, and the meshes that it left out."""
    seen, known = search.num_meshes, search.all_meshes
    meshes = f"{seen}" if seen == known else f"{seen} of {known}"
    lines = [f"{search.seconds:.1f} s for {meshes} mesh{'es' * (known > 1)}"]
    if search.method == "tree":
        lines.append(f"tree search, which priced {search.num_states:,} states")
    if search.model_s and search.candidates[0].name == "auto":
        lines.append(
            f"by the cost model of the integer program, no plan on this mesh is more "
            f"than {100 * search.gap:.1f} % faster"
        )
    text = "; ".join(lines)
    if search.is_interrupted:
        return f"{text}\ninterrupted: this is the best so far"
    if seen < known:
        return f"{text}\nno time was left for the other meshes: try a larger --budget"
    return text
