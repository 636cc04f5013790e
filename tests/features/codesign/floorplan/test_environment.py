"""Macros placed one by one: legal at every allowed cell, and paid by the exact proxy."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.codesign import floorplan as fp
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.policy.episodes import INFEASIBLE, Episodes
from meshwright.features.codesign.floorplan.policy.pull import make_pull
from meshwright.features.codesign.floorplan.policy.task import make_task
from tests.features.codesign.floorplan.chips import (
    TILES,
    TOYS,
    node,
    random_chip,
    random_nodes,
)


def blocked_chip() -> fp.ChipPlacement:
    """A chip with a fixed macro and a blockage."""
    start = random_chip(6)
    blocked = (fp.Blockage(60.0, 0.0, 100.0, 30.0, 1.0),)
    first = start.netlist.block("M4")
    is_fixed, x, y = start.is_fixed.copy(), start.x.copy(), start.y.copy()
    is_fixed[first], x[first], y[first] = True, 20.0, 20.0
    canvas = replace(start.canvas, blockages=blocked)
    return replace(start, canvas=canvas, is_fixed=is_fixed, x=x, y=y)


def play(episodes: Episodes, seed: int) -> None:
    """Place every macro at a random free cell."""
    rng = np.random.default_rng(seed)
    while not episodes.is_over:
        chances = np.where(episodes.free, rng.random(episodes.free.shape), -1)
        episodes.act(chances.argmax(axis=1))


@pytest.mark.parametrize("seed", range(3))
def test_allowed_cells_never_lead_to_faults_and_forbidden_ones_always_do(seed):
    frame = blocked_chip()
    task = make_task(frame, fp.WEIGHTS)
    episodes = Episodes(task, 1)
    rng = np.random.default_rng(seed)
    while not episodes.is_over:
        block = int(task.order[episodes.step])
        placed = [*task.order[: episodes.step], block, frame.netlist.block("M4")]
        for cell in rng.choice(episodes.free.shape[1], 20, replace=False):
            x, y = episodes.x[0].copy(), episodes.y[0].copy()
            row, column = divmod(int(cell), task.columns)
            x[block] = (column + 0.5) * frame.canvas.cell_width
            y[block] = (row + 0.5) * frame.canvas.cell_height
            named = {frame.netlist.nodes[frame.netlist.blocks[b]].name for b in placed}
            faults = [
                fault
                for fault in fp.faults_of(frame.moved(x, y, frame.orientations), frame)
                if "e+" not in fault
                and fault.split()[0] in named
                and all(n in named for n in fault.split() if n.startswith("M"))
            ]
            assert bool(faults) != episodes.free[0, cell], faults
        episodes.act(np.array([rng.choice(np.flatnonzero(episodes.free[0]))]))
    assert episodes.finish(0)
    assert not fp.faults_of(episodes.placement(0), frame)


def test_the_reward_is_minus_the_proxy_of_cost():
    frame = blocked_chip()
    weights = (1.0, 0.3, 0.2)
    episodes = Episodes(make_task(frame, weights), 4)
    play(episodes, 0)
    for i, reward in enumerate(episodes.rewards()):
        placed = episodes.placement(i)
        assert reward == pytest.approx(
            -fp.cost(frame.netlist, placed).proxy(weights), abs=1e-12
        )


def test_macros_without_a_free_cell_end_the_episode():
    sides = {"width": 70.0, "height": 19.0, "x": 0.0, "y": 0.0}
    nodes = [node(f"M{i}", "MACRO", **sides) for i in range(4)]
    frame = fp.start_of(fp.make_netlist(nodes), fp.Canvas(100.0, 80.0, 5, 4))
    task = make_task(frame, fp.WEIGHTS)
    wide = Episodes(task, 2)
    play(wide, 0)
    assert not wide.is_stuck.any()
    narrow = Episodes(
        make_task(replace(frame, canvas=fp.Canvas(100.0, 80.0, 4, 3)), fp.WEIGHTS), 2
    )
    play(narrow, 0)
    assert narrow.is_stuck.all()
    assert narrow.rewards().tolist() == [INFEASIBLE, INFEASIBLE]


def test_pull_is_where_all_blocks_that_follow_let_a_macro_rest():
    frame = blocked_chip()
    task = make_task(frame, fp.WEIGHTS)
    degree = np.asarray(task.links.sum(axis=1)).ravel()
    is_free = ~frame.is_fixed & task.tables.has_area
    spring = 1e-3 * degree[is_free].mean()
    matrix = np.diag(degree + spring) - task.links.toarray()
    places = np.stack([frame.x, frame.y], axis=1)
    centre = np.array([frame.canvas.width, frame.canvas.height]) / 2
    for step in (0, 2, len(task.order) - 1):
        kept = ~is_free
        kept[task.order[:step]] = True
        rest = ~kept
        force = -matrix[np.ix_(rest, kept)] @ places[kept] + spring * centre
        solved = np.linalg.solve(matrix[np.ix_(rest, rest)], force)
        wanted = solved[np.flatnonzero(rest).tolist().index(task.order[step])]
        pull = make_pull(
            task.tables, task.links, task.order, is_free, (frame.x, frame.y)
        )
        point = pull.anchors[step] + pull.weights[step] @ places[task.order]
        np.testing.assert_allclose(point, wanted, rtol=1e-9)


def test_netlists_without_macros_to_place_are_refused():
    softs = fp.make_netlist([node("Grp_1", "macro", width=2.0, height=2.0)])
    with pytest.raises(FloorplanError, match="no macro that may move"):
        make_task(fp.start_of(softs), fp.WEIGHTS)


def test_without_gymnasium_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gymnasium.spaces", None)
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    from meshwright.features.codesign.floorplan.policy import environment

    environment._environment_class.cache_clear()
    with pytest.raises(FloorplanError, match=r"meshwright\[floorplan\]"):
        fp.environment(random_chip(0).netlist)
    environment._environment_class.cache_clear()


@pytest.mark.parametrize("name", ["tiles", "sample_clustered", "blocked", "random"])
def test_the_environment_keeps_to_gymnasium(name):
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    frame = {
        "tiles": lambda: fp.start_of(fp.read(TILES)),
        "sample_clustered": lambda: fp.frame_of(
            fp.read(TOYS / "sample_clustered" / "netlist.pb.txt")
        ),
        "blocked": blocked_chip,
        "random": lambda: fp.start_of(fp.make_netlist(random_nodes(1, macros=30))),
    }[name]()
    environment = fp.environment(frame.netlist, frame, max_grid=32)
    checker.check_env(environment, skip_render_check=True)


def test_an_episode_of_the_environment_ends_with_minus_the_proxy():
    pytest.importorskip("gymnasium")
    frame = blocked_chip()
    environment = fp.environment(frame.netlist, frame)
    rng = np.random.default_rng(0)
    seen, info = environment.reset(seed=0)
    assert set(info.values()) == {-1.0}
    assert seen["mask"].shape == (128 * 128,)
    rewards, is_over, steps = 0.0, False, 0
    while not is_over:
        assert (seen["mask"] == environment.action_masks()).all()
        action = rng.choice(np.flatnonzero(seen["mask"]))
        seen, reward, is_over, is_cut, info = environment.step(action)
        rewards, steps = rewards + reward, steps + 1
        assert not is_cut
        assert seen["is_node_placed"].sum() >= steps
    found = fp.cost(frame.netlist, environment.placement)
    assert rewards == pytest.approx(-found.proxy(), abs=1e-12)
    assert info["congestion"] == pytest.approx(found.congestion, abs=1e-12)
    assert not fp.faults_of(environment.placement, frame)
    with pytest.raises(FloorplanError, match="the episode is over"):
        environment.step(0)
    environment.reset()
    forbidden = int(np.flatnonzero(~environment.action_masks())[0])
    assert environment.step(forbidden)[1:3] == (INFEASIBLE, True)


def test_sizes_of_observations_below_the_netlist_are_refused():
    pytest.importorskip("gymnasium")
    frame = random_chip(0)
    for name, words in (("max_grid", "9 rows"), ("max_nodes", "nodes")):
        with pytest.raises(
            FloorplanError, match=f"{name} is 2; the netlist has .*{words}"
        ):
            fp.environment(frame.netlist, frame, **{name: 2})


@pytest.mark.parametrize("action", [-1, 1024, 1.5, "a", None, [1, 2]])
def test_actions_that_are_no_cells_are_refused(action):
    pytest.importorskip("gymnasium")
    environment = fp.environment(random_chip(0).netlist, random_chip(0), max_grid=32)
    environment.reset()
    with pytest.raises(FloorplanError, match="wanted 0 to 1023"):
        environment.step(action)
