"""Pipeline plans read from JSON."""

from meshwright.app.tactic_text import parse_tactics
from meshwright.planner.pipeline.pipeline_plan import PipelinePlan


def read_pipeline(text: str) -> PipelinePlan:
    """The pipeline plan that `PipelinePlan.to_json` has written."""
    return PipelinePlan.from_json(text, parse_tactics)
