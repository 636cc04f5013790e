"""Reading pipeline plans from JSON."""

from meshwright.app.tactic_text import parse_tactics
from meshwright.features.pipeline.planning.pipeline_plan import PipelinePlan


def read_pipeline(text: str) -> PipelinePlan:
    """The pipeline plan in a JSON text that `PipelinePlan.to_json` wrote."""
    return PipelinePlan.from_json(text, parse_tactics)
