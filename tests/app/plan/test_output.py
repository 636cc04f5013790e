"""Files that a plan is written into, where there can be none; and what it prints."""

import jax.numpy as jnp
import pytest

import meshwright as mw
from meshwright.errors import PlanError


@pytest.fixture(scope="module")
def plan():
    x = jnp.ones((8, 8))
    made = mw.partition(lambda x: x @ x, {"data": 4}, [mw.shard({"x": 0}, "data")])
    return made.plan(x).on("tpu-v5e")


@pytest.mark.parametrize("how", ["report", "trace"])
def test_a_path_that_cannot_be_written_is_refused_with_the_reason(plan, how, tmp_path):
    write = getattr(plan, how)
    with pytest.raises(PlanError, match="there is no folder"):
        write(tmp_path / "none" / "x.html")
    with pytest.raises(PlanError, match="is a folder"):
        write(tmp_path)
    with pytest.raises(PlanError, match="path is None"):
        write(None)
    with pytest.raises(PlanError, match=r"cannot write .*: File name too long"):
        write(tmp_path / ("x" * 300))
    assert list(tmp_path.iterdir()) == []


def test_confirm_refuses_what_is_no_machine(plan):
    with pytest.raises(PlanError, match="machine is None"):
        plan.confirm(None)


def test_an_estimate_prints_its_figures_and_not_its_programs(plan):
    assert "step_time_s=" in repr(plan.estimate)
    assert len(repr(plan.estimate)) < 4000
