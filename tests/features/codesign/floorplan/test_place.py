"""Found placements are legal, repeatable, resumable, and optimal on tiny chips."""

import itertools
import json
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from meshwright.codesign import floorplan as fp
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.command import floorplan_command
from meshwright.features.codesign.floorplan.costs.tables import make_tables
from meshwright.features.codesign.floorplan.netlist.netlist import NodeKind
from meshwright.features.codesign.floorplan.placers.schedule import stages_of
from meshwright.features.codesign.floorplan.starts.analytic import Patience, analytic
from meshwright.features.codesign.floorplan.starts.room import make_room
from tests.features.codesign.floorplan.chips import (
    ARIANE,
    TOYS,
    ariane,
    node,
    random_chip,
    random_nodes,
)


def pin(macro: str, name: str, *inputs: str, dx: float = 0.0):
    offsets = {"x_offset": dx, "y_offset": 0.0}
    return node(f"{macro}/{name}", "MACRO_PIN", *inputs, macro_name=macro, **offsets)


def tiny_chip() -> fp.ChipPlacement:
    """Two macros and a soft macro between two ports, on a grid of five by four cells."""
    size = {"width": 10.0, "height": 10.0, "x": 0.0, "y": 0.0}
    nodes = [
        node("L", "PORT", "A/p", side="LEFT", x=0.0, y=5.0),
        node("R", "PORT", "B/p", side="RIGHT", x=60.0, y=30.0),
        node("A", "MACRO", **size),
        node("B", "MACRO", **size),
        node("Grp_S", "macro", **{**size, "width": 6.0}),
        pin("A", "p", dx=3.0),
        pin("A", "q", "Grp_S/p", "B/p", dx=-4.0),
        pin("B", "p", dx=-5.0),
        pin("Grp_S", "p", "R"),
    ]
    canvas = fp.Canvas(60.0, 40.0, 5, 4, 1.0, 1.0, 0.5, 0.5)
    return fp.start_of(fp.make_netlist(nodes), canvas)


def test_no_placement_on_cell_centres_is_better_than_the_one_found():
    frame = tiny_chip()
    found = fp.place(frame.netlist, canvas=frame, evaluations=60_000, seed=0)
    evaluator = fp.Evaluator(frame.netlist, frame)
    centres = [(6 + 12 * c, 5 + 10 * r) for c in range(5) for r in range(4)]
    least = np.inf
    for turns in itertools.product(("N", "FN"), repeat=2):
        evaluator.flip("A", turns[0])
        evaluator.flip("B", turns[1])
        for a, b in itertools.permutations(centres, 2):
            evaluator.move("A", *a)
            evaluator.move("B", *b)
            least = min(least, *(evaluator.move("Grp_S", *s) for s in centres))
    assert found.proxy <= least + 1e-9
    assert not fp.faults_of(found.placement, frame)


def test_same_seed_and_evaluations_give_the_same_placement(tmp_path):
    netlist = random_chip(2).netlist
    frame = fp.frame_of(netlist, fp.Canvas(100.0, 80.0, 9, 7, smoothing=2))
    args = {"canvas": frame, "evaluations": 12_000}
    first = fp.place(netlist, seed=1, **args)
    again = fp.place(netlist, seed=1, out=tmp_path / "a.plc", **args)
    assert first.placement.to_text() == again.placement.to_text()
    on_disk = fp.read_placement(netlist, tmp_path / "a.plc")
    assert fp.cost(netlist, on_disk).proxy() == pytest.approx(first.proxy, abs=1e-12)
    other = fp.place(netlist, seed=2, **args)
    assert other.placement.to_text() != first.placement.to_text()
    assert first.evaluations == 24_000
    assert [row[0] for row in first.gains][-1] == "descent"
    assert first.proxy < first.curve[0].proxy


def test_positions_of_the_file_are_not_used():
    nodes = random_nodes(4)
    moved = [
        replace(n, attributes={**n.attributes, "x": "f: 50", "y": "f: 40"})
        if n.name.startswith(("M", "G"))
        else n
        for n in nodes
    ]
    canvas = fp.Canvas(100.0, 80.0, 9, 7)
    texts = []
    for each in (nodes, moved):
        netlist = fp.make_netlist(each)
        found = fp.place(netlist, canvas=canvas, evaluations=2_000, seed=0)
        texts.append([found.placement.x.tolist(), found.placement.y.tolist()])
    assert texts[0] == texts[1]


def test_an_interrupted_search_goes_on_as_if_it_had_not_been(tmp_path):
    netlist = random_chip(2).netlist
    canvas = fp.Canvas(100.0, 80.0, 9, 7)
    args = {"canvas": canvas, "evaluations": 90_000, "seed": 3}
    whole = fp.place(netlist, **args)

    def stop(point: fp.SearchPoint) -> None:
        if point.evaluations >= 60_000:
            raise KeyboardInterrupt

    part = fp.place(netlist, progress=stop, resume=tmp_path / "run", **args)
    assert part.is_interrupted
    assert not fp.faults_of(part.placement)
    resumed = fp.place(netlist, resume=tmp_path / "run", **args)
    assert resumed.placement.to_text() == whole.placement.to_text()
    assert resumed.evaluations == whole.evaluations
    with pytest.raises(
        FloorplanError, match="holds a search with seed 3; this one has 4"
    ):
        fp.place(netlist, resume=tmp_path / "run", **{**args, "seed": 4})


def test_fixed_macros_stay_and_blockages_stay_free():
    start = random_chip(6)
    blockage = fp.Blockage(60.0, 0.0, 100.0, 30.0, 1.0)
    fixed = start.is_fixed.copy()
    first = start.netlist.block("M4")
    fixed[first] = True
    x, y = start.x.copy(), start.y.copy()
    x[first], y[first] = 20.0, 20.0
    canvas = replace(start.canvas, blockages=(blockage,))
    frame = replace(start, canvas=canvas, is_fixed=fixed, x=x, y=y)
    found = fp.place(frame.netlist, canvas=frame, evaluations=4_000, seed=0)
    assert (found.placement.x[first], found.placement.y[first]) == (20.0, 20.0)
    assert not fp.faults_of(found.placement, frame)


def test_a_start_is_legalized_and_improved():
    netlist = ariane()
    start = fp.read_placement(netlist, ARIANE / "initial.plc")
    found = fp.place(netlist, start, evaluations=4_000, seed=0, method="descent")
    assert not fp.faults_of(found.placement, start)
    assert found.proxy < found.curve[0].proxy


def test_hundreds_of_macros_of_many_sizes_are_placed_with_smoothing():
    netlist = fp.make_netlist(random_nodes(0, macros=300, softs=60))
    hard = netlist.blocks_of(NodeKind.MACRO)
    area = sum(
        float(netlist.number("width", [i])[0] * netlist.number("height", [i])[0])
        for i in (netlist.blocks[b] for b in hard)
    )
    side = (area / 0.75) ** 0.5
    canvas = fp.Canvas(side, side, 30, 30, smoothing=2)
    found = fp.place(netlist, canvas=canvas, evaluations=2_000, seed=0)
    assert not fp.faults_of(found.placement)
    assert found.proxy < found.curve[0].proxy


def crowded_chip() -> fp.ChipPlacement:
    """Macros and soft macros of many sizes that fill most of a canvas."""
    nodes = random_nodes(5, macros=40, softs=80, pins_each=4)
    netlist = fp.make_netlist(nodes)
    side = float(np.sqrt(netlist.area / 0.7))
    return fp.start_of(netlist, fp.Canvas(side, side, 20, 20, smoothing=2))


def test_auto_begins_at_analytic_placements_where_moves_are_few():
    frame = crowded_chip()
    found = fp.place(frame.netlist, canvas=frame, evaluations=4000)
    assert not fp.faults_of(found.placement, frame)
    stages = [point.stage for point in found.curve]
    assert stages == ["start", "analytic", "annealing", "descent"]
    for method in ("anneal", "descent"):
        other = fp.place(frame.netlist, canvas=frame, evaluations=4000, method=method)
        assert found.cost.proxy() < other.cost.proxy(), method


def test_auto_does_not_compile_starts_in_a_few_seconds():
    for seconds, starts in ((5.0, ""), (300.0, "analytic"), (None, "analytic")):
        first, last = stages_of("auto", has_start=False, seconds=seconds)
        assert (first.name, first.starts, last.name) == ("annealing", starts, "descent")
        assert first.share + last.share == 1


def test_an_analytic_placement_ends_within_the_patience():
    frame = crowded_chip()
    tables, looks = make_tables(frame), list[float]()

    def clock() -> float:
        looks.append(0.0)
        return float(len(looks))

    for seconds, most in ((30.0, 35), (0.0, 10)):
        looks.clear()
        analytic(
            frame,
            tables,
            make_room(tables, frame),
            (1.0, 0.5, 0.5),
            seed=0,
            patience=Patience(seconds, clock),
        )
        assert len(looks) <= most


def square(name: str, side: float, x: float = 0.0):
    return node(name, "MACRO", width=side, height=side, x=x, y=6.0)


@pytest.mark.parametrize(
    ("sides", "is_fixed", "words"),
    [
        ((9.0, 9.0), False, "162 um2 and cannot fit on the canvas of 12 x 12"),
        ((13.0,), False, "'M0' of 13 x 13 um is larger than the canvas"),
        ((8.0, 7.0), False, "no legal packing of 2 macros"),
        ((6.0, 6.0), True, "fixed macros are no legal start: M0 and M1 overlap"),
    ],
)
def test_macros_that_cannot_be_placed_are_refused(sides, is_fixed, words):
    netlist = fp.make_netlist(
        [square(f"M{i}", s, 5.0 + i) for i, s in enumerate(sides)]
    )
    frame = fp.start_of(netlist, fp.Canvas(12.0, 12.0, 3, 3))
    frame = replace(frame, is_fixed=np.full(len(sides), is_fixed))
    with pytest.raises(FloorplanError, match=words):
        fp.place(netlist, canvas=frame, evaluations=10)


def test_unknown_methods_and_budgets_are_refused():
    netlist = tiny_chip().netlist
    with pytest.raises(FloorplanError, match="wanted one of auto, anneal, descent"):
        fp.place(netlist, method="magic")
    with pytest.raises(FloorplanError, match="wanted more than 0"):
        fp.place(netlist, seconds=0)


def test_commands(tmp_path, capsys):
    from typer.testing import CliRunner

    runner = CliRunner()
    folder = TOYS / "sample_clustered"
    files = [str(folder / "netlist.pb.txt"), str(folder / "initial.plc")]
    answer = runner.invoke(floorplan_command, ["cost", *files, "--json"])
    assert json.loads(answer.stdout)["overlaps"] == []
    assert runner.invoke(floorplan_command, ["check", *files]).exit_code == 0
    out, page = tmp_path / "placed.plc", tmp_path / "page.html"
    options = ["--evaluations", "500", "--out", str(out), "--html", str(page)]
    answer = runner.invoke(floorplan_command, ["place", files[0], *options])
    assert answer.exit_code == 0
    assert "overlaps    0" in answer.stdout
    assert "data-block" in page.read_text()
    text = out.read_text()
    assert "# Congestion cost : " in text
    # The first macro moved onto the second one.
    words = text.split("\n2 ")[1].split("\n")[1].split(" ", 1)[1]
    rows = [f"2 {words}" if row.startswith("2 ") else row for row in text.split("\n")]
    out.write_text("\n".join(rows))
    answer = runner.invoke(floorplan_command, ["check", files[0], str(out)])
    assert answer.exit_code == 1
    assert "M0 and M1 overlap by" in answer.stdout


@pytest.mark.slow
def test_killed_searches_leave_a_legal_placement_that_never_gets_worse(tmp_path):
    out, folder = tmp_path / "placed.plc", tmp_path / "run"
    source = ARIANE / "netlist.pb.txt.gz"
    command = [sys.executable, "-m", "meshwright", "floorplan", "place", str(source)]
    command += ["--evaluations", "2000000", "--out", str(out), "--resume", str(folder)]
    rng, before = np.random.default_rng(0), np.inf
    for _ in range(30):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while not out.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 8))
        process.kill()
        process.wait()
        placement = fp.read_placement(ariane(), out)
        assert not fp.faults_of(placement)
        proxy = fp.cost(ariane(), placement).proxy()
        assert proxy <= before + 1e-12
        before = proxy
