"""Layouts that planning by phases chooses for PaLM, against Pope et al. (MLSys 2023)."""

import pytest

import meshwright as mw
from benchmarks.papers.inference_layouts import torus_of
from benchmarks.papers.published import TABLES_2_3
from benchmarks.papers.serving import BUDGET_S, CASES, phases_of, rows_of, tied_layouts
from meshwright.app.phases import plan_phases
from zoo import palm


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0] or case[1])
def test_both_phases_get_the_layouts_of_the_paper(case):
    machine = mw.machine("tpu-v4", chips=case[2])
    mesh = dict(zip("xyz", torus_of(machine), strict=True))
    plans = plan_phases(
        phases_of(case), machine=machine, mesh=mesh, search="experts", budget_s=BUDGET_S
    )
    named = [row for row in rows_of(case, plans) if row["paper_layout"]]
    assert named
    for row in named:
        assert row["layout"] in row["tied_layouts"]


def test_only_sixteen_chips_tie_two_layouts():
    assert {row.name: tied_layouts(row) for row in TABLES_2_3} == {
        row.name: {"WS 1D", "WS 2D"} if row.chips == 16 else {row.passes.layout}
        for row in TABLES_2_3
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompts", "gathered"),
    [(4, ""), (16, "x"), (64, "xy"), (128, "xyz"), (256, "xyz")],
)
def test_more_prompts_gather_weights_over_more_axes(prompts, gathered):
    """PaLM 540B on 64 chips; the paper measures the last step at 0.25M to 0.5M tokens."""
    fn, args = palm.targets["palm_540b"](batch=prompts)
    machine, seconds = mw.machine("tpu-v4", chips=64), {}
    for over in ("", "x", "xy", "xyz"):
        layout = f"weight_gathered_{over}" if over else "weight_stationary_2d"
        tactic = mw.inference(layout, ["x", "y", "z"])
        try:
            step = mw.partition(fn, {"x": 4, "y": 4, "z": 4}, [tactic])
            seconds[over] = step.plan(*args).on(machine).step_time_s
        except mw.MeshwrightError:  # fewer prompts than devices along the axes
            continue
    assert min(seconds, key=seconds.__getitem__) == gathered
