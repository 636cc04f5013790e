"""The JSON form of a plan: all its data except the program."""

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.app.record.plan_record import PlanRecord
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Recompute, Recorded, Tactic, decisions_of
from meshwright.partitioner.tactics.recorded import LONG, Decisions
from meshwright.plain import Frame, hints_of

_TYPES: dict[str, Any] = {
    **hints_of(PlanRecord),
    "mesh": Mapping[str, int],
    "sequential": Mapping[str, int],
    "num_parameters": int,
    "recompute": tuple[tuple[str, ...], ...],
    "decisions": tuple[Decisions, ...],
    "candidates": tuple[tuple[str, str, str, str, str, str], ...],
    "code": tuple[str, ...],
}
"""Type annotations of the JSON fields."""

_NAMES = (
    "mesh", "sequential", "gather", "counts", "collectives", "inputs", "outputs", "steps",
    "fixed", "uncut", "unpriced", "loops", "donated", "whole", "name", "figures",
    "num_parameters",
    "tokens_per_step", "token_input", "recompute", "decisions", "candidates", "code",
)  # fmt: skip
"""The JSON fields in the order in which they are written."""

_HINTS = {name: _TYPES[name] for name in _NAMES}


def _split_numbers(entry: Any, path: str) -> Any:
    """The fields of `Decisions`, with lists of the numbers that are written as a text."""
    del path
    return entry | {n: list(map(int, entry[n].split())) for n in LONG if n in entry}


_FRAME = Frame(
    PlanError,
    "this is no plan",
    {"format": 7},
    derived=("search",),
    prepare={Decisions: _split_numbers},
    indent=1,
    advice="the text that to_json gives; a file is read by mw.Plan.load(path)",
)
"""JSON texts of plans; those of other formats are refused.

The command `search` adds an entry about its search.
"""


def record_to_json(plan: PlanRecord, candidates: Sequence[Sequence[str]]) -> str:
    """JSON text of a plan without its program; `fields_from_json` is the inverse.

    candidates: the rows of the table of plans that a search simulated.
    """
    tactics = repeating_tactics(plan)
    derived = {
        "mesh": plan.mesh.spatial.shape,
        "sequential": {a: plan.mesh.size(a) for a in plan.mesh.sequential},
        "recompute": [t.keep for t in tactics if isinstance(t, Recompute)],
        "decisions": [
            t.decisions.to_json() for t in tactics if isinstance(t, Recorded)
        ],
        "candidates": candidates,
        "code": plan.code.splitlines(),
    }
    fields = {n: derived[n] if n in derived else getattr(plan, n) for n in _NAMES}
    return _FRAME.write(fields)


def fields_from_json(text: str) -> dict[str, Any]:
    """The fields of a `PlanRecord`, by name, read from JSON text.

    Raises `PlanError` for any other text.
    """
    read = _FRAME.read(_HINTS, text)
    read["mesh"] = Mesh(read["mesh"], sequential=read.pop("sequential"))
    read["recorded_candidates"] = read.pop("candidates")
    read["recorded_parameters"] = read.pop("num_parameters")
    read["recorded_code"] = "\n".join(read.pop("code"))
    rewriting = [Recompute(names) for names in read.pop("recompute")]
    decisions = map(Recorded, read.pop("decisions"))
    return {**read, "recorded": (*rewriting, *decisions)}


def repeating_tactics(plan: PlanRecord) -> tuple[Tactic, ...]:
    """Tactics that repeat a plan's sharding decisions for the same program.

    These are the decisions themselves (`Recorded`), which check that the program is the
    same and which can be stored in JSON. The tuple is empty if a tactic of the user's own
    rewrites the program.
    """
    decided = plan.decided
    if decided is None:
        return plan.recorded
    rewriting = [t for t in decided.tactics if t.rewrite is not None]
    if not all(isinstance(tactic, Recompute) for tactic in rewriting):
        return ()
    return (*rewriting, Recorded(decisions_of(decided.work)))
