"""The JSON form of a plan's record."""

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
from meshwright.partitioner.lower import Gather
from meshwright.predict.figures import read_figures

FORMAT = 2
"""Version of the JSON form; a plan of another version is refused."""


def record_to_json(plan: PlanRecord) -> str:
    """JSON text of everything but the program; `fields_from_json` is the inverse."""
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
        }
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(
            f"this is no plan: {error!r}; wanted the text of to_json, not a path"
        ) from error


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON's lists as tuples, at every depth."""

    def convert(value: Any) -> Any:
        return tuple(map(convert, value)) if isinstance(value, list) else value

    return {key: convert(value) for key, value in fields.items()}
