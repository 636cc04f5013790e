"""Loops whose number of iterations depends on values, and the number that counts."""

from collections.abc import Sequence

from meshwright.app.output.collapse import group_by
from meshwright.app.record.parts import UnknownLoop
from meshwright.partitioner.decide import Decided
from meshwright.program.analysis.executions import Counted, num_iterations

_LINES = 4
"""Most source lines that a note names."""


def describe_loops(decided: Decided) -> tuple[UnknownLoop, ...]:
    """A record of each loop whose number of iterations depends on values."""
    whiles = [op for op in decided.work.graph.program.walk() if op.kind == "while"]
    return tuple(
        UnknownLoop(
            str(op.source), num_iterations(op), op.params["counted"] is Counted.STATED
        )
        for op in whiles
        if op.params["counted"] is not Counted.EXACT
    )


def loop_notes(loops: Sequence[UnknownLoop]) -> list[str]:
    """Lines of text that name the loops of unknown length, and how often they count."""
    groups = group_by(loops, lambda loop: (loop.is_stated, loop.iterations))
    return [_note(group) for _, group in sorted(groups.items())]


def _note(group: Sequence[UnknownLoop]) -> str:
    """The note about loops that count alike."""
    first, plural = group[0], "s" * (len(group) > 1)
    turns = f"{first.iterations} iteration" + "s" * (first.iterations != 1)
    head = f"{len(group)} loop{plural} of unknown length, counted as {turns}"
    lines = list(dict.fromkeys(loop.source or "no source line" for loop in group))
    more = f" and {len(lines) - _LINES} more lines" if len(lines) > _LINES else ""
    note = f"{head}{', as stated' * first.is_stated}: {', '.join(lines[:_LINES])}{more}"
    return note if first.is_stated else f"{note} (mw.iterations states the number)"
