"""The JSON form of a plan: all its data except the program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from meshwright.app.record.json_values import checked
from meshwright.app.record.plan_record import (
    Collective,
    FixedSharding,
    Leaf,
    PlanRecord,
    TacticEffect,
    UncutWork,
    code_text,
)
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import (
    LONG,
    Decisions,
    Recompute,
    Recorded,
    Tactic,
    decisions_of,
)
from meshwright.predict.figures import Figures

FORMAT = 6
"""Version of the JSON form; plans of other versions are refused."""

_ROWS = {
    "collectives": Collective, "inputs": Leaf, "outputs": Leaf, "steps": TacticEffect,
    "fixed": FixedSharding,
    "uncut": UncutWork,
}  # fmt: skip
"""Fields of a plan that are tuples of records, with the class of the records."""

_HINTS: dict[str, Any] = {
    "mesh": Mapping[str, int],
    "sequential": Mapping[str, int],
    "gather": str,
    "counts": Mapping[str, int],
    **{name: tuple[row_class, ...] for name, row_class in _ROWS.items()},
    "whole": tuple[str, ...],
    "name": str,
    "figures": Figures | None,
    "num_parameters": int,
    "tokens_per_step": int | None,
    "token_input": str,
    "recompute": tuple[tuple[str, ...], ...],
    "candidates": tuple[tuple[str, str, str, str, str, str], ...],
    "code": tuple[str, ...],
}
"""Type annotations of the JSON fields, except for `format` and `decisions`."""


def record_to_json(plan: PlanRecord, candidates: Sequence[Sequence[str]]) -> str:
    """JSON text of a plan without its program; `fields_from_json` is the inverse.

    candidates: the rows of the table of plans that a search simulated.
    """
    tactics = repeating_tactics(plan)
    fields = {
        "format": FORMAT,
        "mesh": plan.mesh.spatial.shape,
        "sequential": {a: plan.mesh.size(a) for a in plan.mesh.sequential},
        "gather": plan.gather.value,
        "counts": dict(plan.counts),
        **{name: [asdict(row) for row in getattr(plan, name)] for name in _ROWS},
        "whole": list(plan.whole),
        "name": plan.name,
        "figures": plan.figures and asdict(plan.figures),
        "num_parameters": plan.num_parameters,
        "tokens_per_step": plan.tokens_per_step,
        "token_input": plan.token_input,
        "recompute": [list(t.keep) for t in tactics if isinstance(t, Recompute)],
        "decisions": [
            t.decisions.to_json() for t in tactics if isinstance(t, Recorded)
        ],
        "candidates": [list(row) for row in candidates],
        "code": code_text(plan).splitlines(),
    }
    return json.dumps(fields, indent=1)


def fields_from_json(text: str) -> dict[str, Any]:
    """The fields of a `PlanRecord`, by name, read from JSON text.

    Raises `PlanError` for any other text.
    """
    try:
        fields = json.loads(text)
        if fields["format"] != FORMAT:
            raise PlanError(
                f"plan has format {fields['format']!r}; this is {FORMAT}; make the plan "
                "again with this version"
            )
        read = {
            name: checked(fields[name], hint, name) for name, hint in _HINTS.items()
        }
        decisions = [
            _decisions(each) for each in checked(fields["decisions"], list, "decisions")
        ]
        read["mesh"] = Mesh(read["mesh"], sequential=read.pop("sequential"))
        read["gather"] = Gather(read["gather"])
        read["recorded_candidates"] = read.pop("candidates")
        read["recorded_parameters"] = read.pop("num_parameters")
        read["recorded_code"] = "\n".join(read.pop("code"))
        rewriting = [Recompute(names) for names in read.pop("recompute")]
        return {**read, "recorded": (*rewriting, *map(Recorded, decisions))}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise PlanError(
            f"this is no plan: {error!r}; wanted the text that to_json gives; a file is "
            "read by mw.Plan.load(path)"
        ) from error


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


def _decisions(given: Any) -> Decisions:
    """The `Decisions` in parsed JSON that `Decisions.to_json` wrote."""
    fields = {**checked(given, dict, "decisions")}
    for name in LONG:
        numbers = checked(fields[name], str, f"decisions.{name}").split()
        fields[name] = [int(number) for number in numbers]
    return checked(fields, Decisions, "decisions")
