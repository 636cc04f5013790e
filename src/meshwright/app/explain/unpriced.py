"""Ops whose cost nobody knows, so that the figures of a plan are lower bounds."""

from collections.abc import Sequence

from meshwright.partitioner.decide import Decided
from meshwright.program.rules.unpriced import is_unpriced

_LINES = 6
"""Most ops that a note names."""

AT_LEAST = "at least "
"""The words before a figure that is a lower bound."""


def describe_unpriced(decided: Decided) -> tuple[str, ...]:
    """The kind and source line of each op whose cost nobody knows, each text once."""
    ops = decided.work.graph.program.walk()
    found = (f"{op.kind} ({op.source})" for op in ops if is_unpriced(op))
    return tuple(dict.fromkeys(found))


def unpriced_note(unpriced: Sequence[str]) -> str:
    """A line of text that names the ops of unknown cost; "" if there are none."""
    if not unpriced:
        return ""
    more = len(unpriced) - _LINES
    rest = f" and {more} more" if more > 0 else ""
    return (
        f"of unknown cost, so that time, memory and shares are at least these: "
        f"{', '.join(unpriced[:_LINES])}{rest} (mw.rule states a cost)"
    )
