"""`check` compares a placement with the canvas and the fixed blocks that were given."""

from dataclasses import replace

import numpy as np
from typer.testing import CliRunner

from meshwright.codesign import floorplan as fp
from meshwright.features.codesign.floorplan.command import floorplan_command
from tests.features.codesign.floorplan.chips import random_nodes


def legal_chip() -> fp.ChipPlacement:
    netlist = fp.make_netlist(random_nodes(3))
    canvas = fp.Canvas(100.0, 80.0, 9, 7)
    return fp.place(netlist, canvas=canvas, evaluations=100).placement


def test_another_canvas_and_blockages_left_out_are_faults():
    placed = legal_chip()
    assert not fp.faults_of(placed, placed)
    larger = replace(placed.canvas, width=120.0)
    (fault,) = fp.faults_of(replace(placed, canvas=larger), placed)
    assert fault == "the canvas is 120 x 80 um, and was 100 x 80"
    everywhere = (fp.Blockage(0.0, 0.0, 100.0, 80.0, 1.0),)
    closed = replace(placed, canvas=replace(placed.canvas, blockages=everywhere))
    assert len(fp.faults_of(placed, closed)) == len(fp.faults_of(closed)) == 6


def test_a_fixed_macro_must_not_be_turned():
    placed = legal_chip()
    block = placed.netlist.block("M1")
    fixed = replace(placed, is_fixed=np.arange(len(placed.x)) == block)
    before = placed.orientations[block]
    after = "N" if before == "FS" else "FS"
    turned = [after if b == block else o for b, o in enumerate(placed.orientations)]
    moved = placed.moved(placed.x, placed.y, tuple(turned))
    assert fp.faults_of(moved, fixed) == [
        f"M1 is fixed as {before} and was turned to {after}"
    ]


def test_ports_that_the_netlist_does_not_place_may_be_anywhere(tmp_path):
    """Without `initial.plc`, only what the netlist itself says is given."""
    placed = legal_chip()
    out, source = tmp_path / "placed.plc", tmp_path / "netlist.pb.txt"
    out.write_text(placed.to_text())
    bare = [
        replace(n, attributes={k: v for k, v in n.attributes.items() if k not in "xy"})
        for n in random_nodes(3)
    ]
    source.write_text(fp.make_netlist(bare).to_text())
    arguments = ["check", str(source), str(out)]
    runner = CliRunner()
    assert runner.invoke(floorplan_command, arguments).exit_code == 0
    (tmp_path / "initial.plc").write_text(
        replace(placed, canvas=fp.Canvas(99.0, 80.0, 9, 7)).to_text()
    )
    answer = runner.invoke(floorplan_command, arguments)
    assert answer.exit_code == 1
    assert "the canvas is 100 x 80 um, and was 99 x 80" in answer.stdout
