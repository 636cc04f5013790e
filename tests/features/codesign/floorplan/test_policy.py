"""Policies learn to place macros; analytic placement and forces give legal starts."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from meshwright.codesign import floorplan as fp
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.command import floorplan_command
from meshwright.features.codesign.floorplan.costs.state import make_state
from meshwright.features.codesign.floorplan.policy.collect import (
    CollectorPool,
    new_policy,
)
from meshwright.features.codesign.floorplan.policy.episodes import Episodes
from meshwright.features.codesign.floorplan.policy.inputs import chip_arrays, side_of
from meshwright.features.codesign.floorplan.policy.network import (
    init_network,
    log_probabilities,
)
from meshwright.features.codesign.floorplan.policy.task import make_task
from meshwright.features.codesign.floorplan.starts.forces import (
    SCHEDULE,
    make_forces,
    place_soft,
)
from tests.features.codesign.floorplan.chips import TOYS, node, random_chip


def soft_places(frame: fp.ChipPlacement) -> fp.ChipPlacement:
    """The placement after forces on its soft macros."""
    task = make_task(frame, fp.WEIGHTS)
    state = make_state(task.tables, frame)
    place_soft(task.tables, state, task.room, SCHEDULE, make_forces(task.tables))
    return frame.moved(state.x.copy(), state.y.copy(), frame.orientations)


def test_forces_move_soft_macros_alone_and_keep_them_on_the_canvas():
    frame = random_chip(3)
    placed = soft_places(frame)
    is_soft = np.array([n.startswith("Grp_") for n in frame.netlist.block_of_name])
    assert (placed.x[~is_soft] == frame.x[~is_soft]).all()
    assert (placed.x[is_soft] != frame.x[is_soft]).all()
    indices = [i for i, s in zip(frame.netlist.blocks, is_soft, strict=True) if s]
    half = frame.netlist.number("width", indices) / 2
    assert (placed.x[is_soft] - half >= 0).all()
    assert (placed.x[is_soft] + half <= frame.canvas.width).all()


def test_forces_pull_a_soft_macro_between_its_ports_and_push_others_apart():
    size = {"width": 10.0, "height": 10.0}
    pin = {"x_offset": 0.0, "y_offset": 0.0}
    nodes = [
        node("L", "PORT", "Grp_1/p", side="LEFT", x=0.0, y=30.0),
        node("R", "PORT", "Grp_1/p", side="TOP", x=40.0, y=30.0),
        node("M", "MACRO", **size, x=90.0, y=70.0),
        node("Grp_1", "macro", **size),
        node("Grp_2", "macro", **size),
        node("Grp_3", "macro", **size),
        node("Grp_1/p", "MACRO_PIN", macro_name="Grp_1", **pin),
    ]
    start = fp.start_of(fp.make_netlist(nodes), fp.Canvas(100.0, 80.0, 10, 8))
    placed = soft_places(start)
    x, y = (
        dict(zip(start.netlist.block_of_name, v, strict=True))
        for v in (placed.x, placed.y)
    )
    away = np.hypot(x["Grp_1"] - 20, y["Grp_1"] - 30)
    assert away < np.hypot(50 - 20, 40 - 30) / 2
    assert np.hypot(x["Grp_2"] - x["Grp_3"], y["Grp_2"] - y["Grp_3"]) > 5


def test_cells_that_are_not_free_have_no_probability():
    task = make_task(random_chip(2), fp.WEIGHTS)
    episodes, side = Episodes(task, 3), side_of(task)
    maps = episodes.maps(side)[:, None]
    params = jax.tree.map(lambda p: p + 0.1, init_network(jax.random.key(1)))
    compiled = jax.jit(log_probabilities)
    log_p = compiled(params, chip_arrays(task), np.zeros(1, np.int32), maps)
    share = np.exp(np.asarray(log_p))[:, 0].reshape(3, side, side)
    rows, columns = task.rows, task.columns
    free = episodes.free.reshape(3, rows, columns)
    assert share[:, :rows, :columns][~free].max(initial=0) < 1e-12
    assert share[:, :rows, :columns].sum() == pytest.approx(3, abs=1e-4)
    assert share.std() > 1e-4


def test_policies_and_trainings_that_do_not_fit_are_refused(tmp_path):
    frame = random_chip(2)
    file = tmp_path / "policy.npz"
    file.write_bytes(b"no archive")
    with pytest.raises(FloorplanError, match="is no policy for floorplans"):
        fp.read_floorplan_policy(tmp_path)
    with pytest.raises(FloorplanError, match="0 steps, 2 workers and 1 netlists"):
        fp.train({"chip": frame}, steps=0)
    with pytest.raises(FloorplanError, match="wanted the method 'policy'"):
        fp.place(frame.netlist, canvas=frame, policy=file)
    with pytest.raises(FloorplanError, match="makes its own start"):
        fp.place(frame.netlist, frame, method="analytic")
    answer = CliRunner().invoke(floorplan_command, ["train", str(tmp_path)])
    assert "holds no netlist" in str(answer.exception)


@pytest.mark.slow
def test_a_policy_learns_to_beat_random_placement():
    frame = fp.frame_of(fp.read(TOYS / "sample_clustered" / "netlist.pb.txt"))
    trained = fp.train({"chip": frame}, steps=1_000, seed=0)
    last = np.mean([point.reward for point in trained.curve[-3:]])
    assert last > trained.curve[0].random + 0.05
    assert trained.table(5).count("\n") == 5


@pytest.mark.slow
def test_a_training_that_goes_on_ends_as_one_that_was_not_interrupted(tmp_path):
    chips = {"a": random_chip(1), "b": random_chip(2)}
    whole = fp.train(chips, steps=500, seed=1)

    def stop(point: fp.TrainingPoint) -> None:
        if point.steps > 200:
            raise KeyboardInterrupt

    part = fp.train(chips, steps=500, seed=1, folder=tmp_path, progress=stop)
    assert part.is_interrupted
    resumed = fp.train(chips, steps=500, seed=1, folder=tmp_path)
    pairs = zip(
        *map(jax.tree.leaves, (p.policy.params for p in (whole, resumed))), strict=True
    )
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)
    assert [p.reward for p in whole.curve] == [p.reward for p in resumed.curve]
    with pytest.raises(FloorplanError, match="a training with seed 1; this one has 2"):
        fp.train(chips, steps=500, seed=2, folder=tmp_path)
    with pytest.raises(FloorplanError, match="a training with another netlist of b"):
        fp.train({**chips, "b": random_chip(3)}, steps=500, seed=1, folder=tmp_path)


@pytest.mark.slow
def test_collectors_find_what_cost_says_and_what_is_legal():
    frame = random_chip(5)
    task = make_task(frame, fp.WEIGHTS)
    with ThreadPoolExecutor(2) as pool:
        played = CollectorPool(task, 2, pool).play(new_policy(0), (0,))
    assert played.best is not None
    assert not fp.faults_of(played.best, frame)
    assert -fp.cost(frame.netlist, played.best).proxy() == played.rewards.max()
    assert played.num_steps == 16 * len(task.order)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["policy", "analytic"])
def test_placements_of_policies_and_analytic_ones_are_legal_and_go_on(method, tmp_path):
    frame = random_chip(5)
    fixed = frame.is_fixed.copy()
    fixed[frame.netlist.block("M2")] = True
    frame = replace(frame, is_fixed=fixed)
    args = {"canvas": frame, "method": method, "evaluations": 3_000, "seed": 0}
    whole = fp.place(frame.netlist, **args)
    assert not fp.faults_of(whole.placement, frame)
    assert [name for name, *_ in whole.gains] == ["start", method, "descent"]
    proxies = [point.proxy for point in whole.curve]
    assert proxies == sorted(proxies, reverse=True)

    def stop(point: fp.SearchPoint) -> None:
        if point.stage == method and point.evaluations > 200:
            raise KeyboardInterrupt

    fp.place(frame.netlist, progress=stop, resume=tmp_path, **args)
    resumed = fp.place(frame.netlist, resume=tmp_path, **args)
    assert resumed.placement.to_text() == whole.placement.to_text()


@pytest.mark.slow
def test_train_and_place_by_command(tmp_path):
    source = TOYS / "sample_clustered"
    out, placed = tmp_path / "policy", tmp_path / "placed.plc"
    run = CliRunner().invoke
    answer = run(
        floorplan_command,
        ["train", str(source), "--steps", "64", "--out", str(out), "--json"],
    )
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["curve"][-1]["steps"] >= 64
    options = ["--method", "policy", "--policy", str(out), "--evaluations", "500"]
    netlist = str(source / "netlist.pb.txt")
    answer = run(floorplan_command, ["place", netlist, *options, "--out", str(placed)])
    assert answer.exit_code == 0, answer.output
    assert run(floorplan_command, ["check", netlist, str(placed)]).exit_code == 0
