"""The JSON form of a plan: everything that was decided, without the program."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import (
    Decisions,
    Recompute,
    Recorded,
    Tactic,
    decisions_of,
)
from meshwright.predict.figures import read_figures

if TYPE_CHECKING:
    pass
from meshwright.app.record.plan_record import (
    Collective,
    FixedSharding,
    Leaf,
    PlanRecord,
    TacticEffect,
    UncutWork,
    code_text,
)

FORMAT = 3
"""Version of the JSON form; a plan of another version is refused."""

_ROWS = {
    "collectives": Collective, "inputs": Leaf, "outputs": Leaf, "steps": TacticEffect,
    "fixed": FixedSharding,
    "uncut": UncutWork,
}  # fmt: skip
"""Fields of a plan that are tuples of records."""


def record_to_json(plan: PlanRecord) -> str:
    """JSON text of everything but the program; `fields_from_json` is the inverse."""
    tactics = repeating_tactics(plan, always=True)
    fields = {
        "format": FORMAT,
        "mesh": plan.mesh.shape,
        "gather": plan.gather.value,
        "counts": dict(plan.counts),
        **{name: [asdict(row) for row in getattr(plan, name)] for name in _ROWS},
        "whole": list(plan.whole),
        "name": plan.name,
        "figures": plan.figures and asdict(plan.figures),
        "tokens_per_step": plan.tokens_per_step,
        "token_input": plan.token_input,
        "recompute": [list(t.keep) for t in tactics if isinstance(t, Recompute)],
        "decisions": [
            t.decisions.to_json() for t in tactics if isinstance(t, Recorded)
        ],
        "code": code_text(plan).splitlines(),
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
            **{
                name: tuple(row_class(**_tuples(row)) for row in fields.get(name, ()))
                for name, row_class in _ROWS.items()
            },
            "whole": tuple(fields["whole"]),
            "name": fields.get("name", ""),
            "figures": read_figures(fields["figures"]),
            "tokens_per_step": fields.get("tokens_per_step"),
            "token_input": fields.get("token_input", ""),
            "recorded_code": "\n".join(fields.get("code", ())),
            "recorded": (
                *(Recompute(tuple(names)) for names in fields["recompute"]),
                *(
                    Recorded(Decisions.from_json(_tuples(each)))
                    for each in fields["decisions"]
                ),
            ),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(
            f"this is no plan: {error!r}; wanted the text that to_json gives; a file is "
            "read by mw.Plan.load(path)"
        ) from error


def repeating_tactics(plan: PlanRecord, always: bool = False) -> tuple[Tactic, ...]:
    """The tactics that take a plan's decisions again for the same program.

    For a plan that a search found, and with `always` for any plan, these are `Recorded`
    decisions: they check that the program is the same, and JSON can hold them. There are
    none if a tactic of the user's own rewrites the program.
    """
    decided = plan.decided
    if decided is None:
        return plan.recorded
    if plan.search is None and not always:
        return decided.tactics
    rewriting = [t for t in decided.tactics if t.rewrite is not None]
    if not all(isinstance(tactic, Recompute) for tactic in rewriting):
        return ()
    return (*rewriting, Recorded(decisions_of(decided.work)))


def _tuples(value: Any) -> Any:
    """The fields of a row with tuples for JSON's lists, at every depth."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
