"""The JSON form of a plan's record: its texts and figures, and all of its decisions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from meshwright.app.record.plan_record import (
    Collective,
    Leaf,
    PlanRecord,
    TacticEffect,
)
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import (
    Decisions,
    Recompute,
    Recorded,
    Tactic,
    decisions_of,
)
from meshwright.predict.figures import read_figures

FORMAT = 3
"""Version of the JSON form; a plan of another version is refused."""


def record_to_json(plan: PlanRecord) -> str:
    """JSON text of everything but the program; `fields_from_json` is the inverse."""
    tactics = plan.recorded if plan.decided is None else _recorded(plan.decided)
    fields = {
        "format": FORMAT,
        "mesh": plan.mesh.shape,
        "gather": plan.gather.value,
        "counts": dict(plan.counts),
        "collectives": [dataclasses.asdict(c) for c in plan.collectives],
        "inputs": [dataclasses.asdict(leaf) for leaf in plan.inputs],
        "outputs": [dataclasses.asdict(leaf) for leaf in plan.outputs],
        "steps": [dataclasses.asdict(s) for s in plan.steps],
        "whole": list(plan.whole),
        "figures": plan.figures and dataclasses.asdict(plan.figures),
        "recompute": [list(t.keep) for t in tactics if isinstance(t, Recompute)],
        "decisions": [
            t.decisions.to_json() for t in tactics if isinstance(t, Recorded)
        ],
    }
    return json.dumps(fields, indent=1)


def fields_from_json(text: str) -> dict[str, Any]:
    """Fields of a `PlanRecord`, by name, from JSON text; `PlanError` for other text."""
    try:
        fields = json.loads(text)
        if fields["format"] != FORMAT:
            raise PlanError(f"plan has format {fields['format']}; this is {FORMAT}")
        return {
            "mesh": Mesh(fields["mesh"]),
            "gather": Gather(fields["gather"]),
            "counts": fields["counts"],
            "collectives": tuple(
                Collective(**_tuples(c)) for c in fields["collectives"]
            ),
            "inputs": tuple(Leaf(**_tuples(leaf)) for leaf in fields["inputs"]),
            "outputs": tuple(Leaf(**_tuples(leaf)) for leaf in fields["outputs"]),
            "steps": tuple(TacticEffect(**_tuples(s)) for s in fields["steps"]),
            "whole": tuple(fields["whole"]),
            "figures": read_figures(fields["figures"]),
            "recorded": (
                *(Recompute(tuple(names)) for names in fields["recompute"]),
                *(Recorded(Decisions.from_json(each)) for each in fields["decisions"]),
            ),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(
            f"this is no plan: {error!r}; wanted the text of to_json, not a path"
        ) from error


def _recorded(decided: Decided) -> tuple[Tactic, ...]:
    """The tactics that decide the same again, and that JSON can hold.

    None if some tactic of the user's own rewrites the program, which JSON cannot hold.
    """
    rewriting = [t for t in decided.tactics if t.rewrite is not None]
    if not all(isinstance(tactic, Recompute) for tactic in rewriting):
        return ()
    return (*rewriting, Recorded(decisions_of(decided.work)))


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON's lists as tuples, at every depth."""

    def convert(value: Any) -> Any:
        return tuple(map(convert, value)) if isinstance(value, list) else value

    return {key: convert(value) for key, value in fields.items()}
