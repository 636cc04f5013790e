"""The tactics of a plan as code that a person can paste, with the same decisions.

Tactics that are not Python code, such as the result of a search, are replaced by one
`mw.pin`, which lists the sharding of each input and op.
"""

import ast
from collections.abc import Callable
from functools import lru_cache

from meshwright.partitioner.decide import Decided, apply_tactics
from meshwright.partitioner.tactics import Pin, Tactic, TacticKind, pin_all
from meshwright.planner.overlap.overlap import Overlap


@lru_cache(maxsize=1)  # `plan.tactics` is read repeatedly
def public_tactics(decided: Decided) -> tuple[Tactic, ...]:
    """The tactics of a program, with the result of a search replaced by an `mw.pin`."""
    # Imported here, since the integer program brings SciPy.
    from meshwright.planner.integer_program.projection import ChosenStrategies

    return _rebuilding(decided, lambda tactic: isinstance(tactic, ChosenStrategies))


def code_of(decided: Decided) -> str:
    """Python code of a list of tactics that rebuild all sharding decisions exactly.

    Tactics that search, and those whose `repr` is not Python code, become one `mw.pin`.
    """
    tactics = _rebuilding(decided, _is_no_code)
    return "\n".join(["[", *(f"    {_code(tactic)}," for tactic in tactics), "]"])


def _code(tactic: Tactic) -> str:
    """The Python code of one tactic; a pin has one line for each entry."""
    if not isinstance(tactic, Pin):
        return repr(tactic)
    entries = (f"\n        {name!r}: {text!r}," for name, text in tactic.pins)
    return f"mw.pin({{{''.join(entries)}\n    }})"


def _is_no_code(tactic: Tactic) -> bool:
    if tactic.kind is TacticKind.SEARCH:
        return True
    try:
        ast.parse(repr(tactic), mode="eval")
    except SyntaxError:
        return True
    return False


def _rebuilding(
    decided: Decided, is_replaced: Callable[[Tactic], bool]
) -> tuple[Tactic, ...]:
    """The tactics up to the first that must be replaced, then the others as one pin.

    Tactics that rewrite the program stay before the pin. `Overlap` tactics follow it, since
    a pin does not store them.
    """
    tactics, work = decided.tactics, decided.work
    replaced = [
        i for i, t in enumerate(tactics) if t.rewrite is None and is_replaced(t)
    ]
    if not replaced:
        return tactics
    rest = tactics[replaced[0] :]
    kept = (*tactics[: replaced[0]], *(t for t in rest if t.rewrite is not None))
    start = apply_tactics(decided.captured, work.mesh, kept, graph=work.graph)
    name = ", ".join(str(tactic) for tactic in rest if tactic.rewrite is None)
    overlaps = (tactic for tactic in rest if isinstance(tactic, Overlap))
    return (*kept, pin_all(work, start, name), *overlaps)
