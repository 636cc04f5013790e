"""Train steps of the zoo as pipelines that the planner has found, on virtual devices."""

from importlib import import_module

import pytest

import meshwright as mw
from meshwright.app.check.sample import sample_arguments

pytestmark = pytest.mark.slow

NAMES = ("llm", "moe", "primer", "ranking", "resnet", "t5")


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_that_the_planner_finds_equals_the_step_on_one_device(name):
    step, args = import_module(f"zoo.{name}").tiny()
    found = mw.autoplan(step, args, machine="h100", chips=8, budget_s=2, pipeline=True)
    args = sample_arguments(step, args, 0)
    report = mw.pipeline(step, found).check(*args)
    assert report.ok, report
