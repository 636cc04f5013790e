"""Netlists and placements are read and written with every field; faults are named."""

from dataclasses import replace

import pytest

from meshwright.codesign import floorplan as fp
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.netlist.netlist import NodeKind
from tests.features.codesign.floorplan.chips import (
    ARIANE,
    TOYS,
    ariane,
    node,
    parsed,
    random_chip,
    random_nodes,
    text,
)

MACRO = node("M", "MACRO", width=4.0, height=2.0, x=5.0, y=5.0)
PIN = node("M/p", "MACRO_PIN", macro_name="M", x_offset=0.0, y_offset=0.0)
PORT = node("P", "PORT", "M/p", side="LEFT", x=0.0, y=1.0)


def test_a_netlist_is_written_as_it_was_read():
    netlist = ariane()
    again = parsed(netlist.to_text())
    for first, second in zip(netlist.nodes, again.nodes, strict=True):
        assert (first.name, first.inputs) == (second.name, second.inputs)
        assert first.attributes == second.attributes
    assert again.metadata.attributes == netlist.metadata.attributes
    assert [netlist.kinds.count(kind) for kind in NodeKind] == [133, 782, 18477, 495, 0]


def test_both_spellings_of_types_are_read():
    netlist = fp.read(TOYS / "toy_macro_stdcell" / "netlist.pb.txt")
    assert netlist.kinds.count(NodeKind.CELL) == 12
    lower = parsed(
        text(MACRO, PIN, PORT).replace("MACRO", "macro").replace("PORT", "port")
    )
    assert lower.kinds == (NodeKind.MACRO, NodeKind.PIN, NodeKind.PORT)
    group = replace(MACRO, name="Grp_1", attributes={**MACRO.attributes})
    assert fp.make_netlist([group, MACRO, PIN]).kinds[0] is NodeKind.SOFT


def test_a_placement_is_written_as_it_was_read(tmp_path):
    path = ARIANE / "legalized.plc"
    placement = fp.read_placement(ariane(), path)
    lines = placement.to_text().split("\n")
    assert [line.strip() for line in lines if line] == [
        line.strip() for line in path.read_text().split("\n") if line
    ]
    folder = TOYS / "simple_grouped_with_coords_with_blockage"
    netlist = fp.read(folder / "netlist.pb.txt")
    placement = fp.read_placement(netlist, folder / "initial.plc")
    assert [b.right for b in placement.canvas.blockages] == [10, 500]
    again = tmp_path / "again.plc"
    again.write_text(replace(placement, comments=()).to_text())
    assert fp.read_placement(netlist, again).canvas == placement.canvas


def test_places_are_written_without_loss(tmp_path):
    placement = random_chip(1)
    path = tmp_path / "a.plc"
    path.write_text(fp.plc_with_costs(placement, fp.cost(placement.netlist, placement)))
    again = fp.read_placement(placement.netlist, path)
    assert (again.x == placement.x).all()
    assert (again.y == placement.y).all()


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([MACRO, MACRO], "'M' at line 0 is defined twice"),
        ([PIN], "pin of 'M', which the netlist lacks"),
        ([node("A", "MAGIC")], "type 'MAGIC'; wanted one of MACRO"),
        ([PORT], "drives 'M/p', which the netlist lacks"),
        ([node("M", "MACRO", width=0.0, height=1.0)], "width 0.0; wanted above 0"),
        (
            [node("M", "MACRO", width="wide", height=1.0)],
            "width 'wide'; wanted a number",
        ),
        ([MACRO, replace(PIN, inputs=("M",))], "drives the macro 'M'"),
        ([], "has no nodes"),
    ],
)
def test_faulty_netlists_are_refused_by_name(nodes, words):
    with pytest.raises(FloorplanError, match=words):
        fp.make_netlist(nodes)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'node {\n  name: "A"\n  attr {\n    key: "x"\n', "from line 3 on"),
        (b"\x00\xff\xfe", "is no text"),
        (b"\x1f\x8b\x08\x00broken", "cannot read a netlist"),
        (b'node { attr { key: "x" value { f: 1 } } }', "line 1 .*without a name"),
        (b'node { name: "A" }\nedge { }', "from line 2 on"),
    ],
)
def test_truncated_and_binary_netlists_are_refused_by_line(tmp_path, content, words):
    path = tmp_path / "netlist.pb.txt"
    path.write_bytes(content)
    with pytest.raises(FloorplanError, match=words):
        fp.read(path)


HEADER = "# Columns : 9  Rows : 7\n# Width : 100  Height : 80\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "lacks columns"),
        (
            "# Columns : 9  Rows : 7\n# Width : 0  Height : 80\n",
            "width 0.0; wanted above 0",
        ),
        (HEADER + "0 1 2 N\n", "line 3 of .*wanted: node_index x y orientation fixed"),
        (HEADER + "0 1 2 Q 0\n", "orientation 'Q'"),
        (HEADER + "5 1 2 N 0\n", "node 5, which is no block"),
        (HEADER + "0 1 2 - 1\n0 1 2 - 1\n", "places 'P0' a second time"),
        (HEADER + "0 1 2 - 1\n", "no place for 'P1'"),
        (HEADER + "# PORTs : 99\n", "of a netlist with 99 ports"),
        (HEADER + "# Smoothing factor : -2\n", "Smoothing factor : -2', which cannot"),
        (HEADER + "# Smoothing factor : 2.5\n", "wanted such as '# Smoothing factor"),
        (HEADER + "# Routes per micron, hor : many ver : 1\n", "which cannot be read"),
        (HEADER.replace("7", "7.5"), r"Rows : 7.5', which cannot be read"),
        (HEADER.replace("80", "80,5"), r"Height : 80,5', which cannot be read"),
        (HEADER + "# Width of the die: 3\n# Blockage : 1 2 3\n", "Blockage : 1 2 3'"),
        (HEADER + "# Blockage : 1 2 3\n", "Blockage : 1 2 3', which cannot be read"),
        (HEADER + "# Blockage : 9 9 1 1 1.0\n", "a blockage has 9, 9, 1, 1, 1; wanted"),
    ],
)
def test_faulty_placements_are_refused_by_line(tmp_path, content, words):
    netlist = fp.make_netlist(random_nodes(0))
    path = tmp_path / "a.plc"
    path.write_text(content)
    with pytest.raises(FloorplanError, match=words):
        fp.read_placement(netlist, path)


def test_marks_of_byte_order_and_ends_of_lines_do_not_matter(tmp_path):
    placement = random_chip(0)
    for name, content in (
        ("netlist.pb.txt", placement.netlist.to_text()),
        ("a.plc", placement.to_text()),
    ):
        windows = content.replace("\n", "\r\n")
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + windows.encode())
    netlist = fp.read(tmp_path / "netlist.pb.txt")
    again = fp.read_placement(netlist, tmp_path / "a.plc")
    assert netlist.to_text() == placement.netlist.to_text()
    assert again.to_text() == placement.to_text()


def test_a_placement_of_another_netlist_is_refused():
    with pytest.raises(FloorplanError, match="another netlist"):
        fp.cost(ariane(), random_chip(0))
