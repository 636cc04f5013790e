"""Flat netlists get the published grid, the published soft macros, or like ones."""

import json
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from meshwright.codesign import floorplan as fp
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.command import floorplan_command
from meshwright.features.codesign.floorplan.grouping.clusters import cluster
from meshwright.features.codesign.floorplan.grouping.group import read_groups
from meshwright.features.codesign.floorplan.netlist.netlist import NodeKind
from tests.features.codesign.floorplan.chips import ARIANE, TOYS, ariane, node


def flat_of(grouped: fp.Netlist) -> tuple[fp.Netlist, dict[str, int]]:
    """A flat netlist that a grouped one could come from, and the group of each cell.

    An output pin becomes as many cells as its weight says; an input pin becomes a cell that
    drives all of them.
    """
    cells_of: dict[str, list[str]] = {}
    outputs: dict[str, tuple[str, tuple[str, ...]]] = {}
    for each, kind, owner in zip(
        grouped.nodes, grouped.kinds, grouped.owners, strict=True
    ):
        if kind is NodeKind.PIN and grouped.kinds[owner] is NodeKind.SOFT:
            macro = grouped.nodes[owner].name
            count = int(float(each.text("weight") or 1))
            own = [f"{each.name}.{i}" for i in range(count)]
            cells_of.setdefault(macro, []).extend(own)
            outputs |= dict.fromkeys(own, (macro, each.inputs))
    macros = {n.name: n for n in grouped.nodes}
    nodes = [
        n
        for n, owner in zip(grouped.nodes, grouped.owners, strict=True)
        if grouped.kinds[owner] is not NodeKind.SOFT
    ]
    for name, (macro, inputs) in outputs.items():
        soft = macros[macro]
        x, y, width, height = (
            float(soft.text(k) or 0) for k in ("x", "y", "width", "height")
        )
        share = width * height / 2 / len(cells_of[macro])
        drives = (n for n in cells_of[macro] if n != name) if "Pinput" in name else ()
        sinks = (*inputs, *drives)
        nodes.append(node(name, "STDCELL", *sinks, width=share, height=1.0, x=x, y=y))
    rename = {f"{macro}/Pinput": f"{macro}/Pinput.0" for macro in cells_of}
    renamed = [
        type(n)(n.name, tuple(rename.get(i, i) for i in n.inputs), n.attributes, 0)
        for n in nodes
    ]
    groups = {name: int(macro[4:]) for name, (macro, _) in outputs.items()}
    return fp.make_netlist(renamed), groups


def test_published_groups_give_the_published_netlist_node_by_node():
    published = ariane()
    flat, groups = flat_of(published)
    found = fp.group(
        flat, fp.read_placement(published, ARIANE / "initial.plc"), groups=groups
    )
    assert (found.canvas.columns, found.canvas.rows) == (24, 21)
    ours = found.netlist
    assert [n.name for n in ours.nodes] == [n.name for n in published.nodes]
    assert [set(n.inputs) for n in ours.nodes] == [
        set(n.inputs) for n in published.nodes
    ]
    assert ours.kinds == published.kinds
    assert ours.owners == published.owners
    for key in ("x", "y", "width", "height", "weight", "x_offset", "y_offset"):
        everyone = range(len(ours.nodes))
        want = published.number(key, everyone)
        np.testing.assert_allclose(
            ours.number(key, everyone), want, rtol=1e-5, atol=1e-6
        )


def test_cells_join_the_macro_beside_them_and_others_the_most_connected():
    size = {"width": 1.0, "height": 1.0, "x": 1.0, "y": 1.0}
    nodes = [
        node("M", "MACRO", width=9.0, height=9.0),
        node("M/p", "MACRO_PIN", "a", macro_name="M", x_offset=0.0, y_offset=0.0),
        node("P", "PORT", side="LEFT", x=0.0, y=5.0),
        node("a", "STDCELL", "b", **size),
        node("b", "STDCELL", "c", "d", **size),
        node("c", "STDCELL", "d", **size),
        node("d", "STDCELL", "e", **size),
        node("e", "STDCELL", "P", **size),
    ]
    netlist = fp.make_netlist(nodes)
    found = cluster(netlist, fp.Canvas(40.0, 40.0, 10, 10), 1, 0)
    a, _, c, d, e = found[3:]
    assert (a, e) == (found[1], found[2])
    assert c == d
    assert c not in (a, e)
    assert len(set(found) - {-1}) == 3


def test_clusters_that_are_spread_out_are_broken_up():
    cells = [
        node(
            f"c{i}",
            "STDCELL",
            f"c{i + 1}" if i < 9 else "P",
            width=1.0,
            height=1.0,
            x=10.0 * i,
            y=1.0,
        )
        for i in range(10)
    ]
    netlist = fp.make_netlist([node("P", "PORT", side="TOP", x=95.0, y=100.0), *cells])
    found = cluster(netlist, fp.Canvas(100.0, 100.0, 10, 10), 1, 0)
    places = {c: [i for i in range(10) if found[i + 1] == c] for c in set(found[1:])}
    assert all(max(own) - min(own) <= 2 for own in places.values())


def test_the_command_writes_a_netlist_that_is_placed(tmp_path):
    out, source = tmp_path / "grouped", TOYS / "toy_macro_stdcell" / "netlist.pb.txt"
    arguments = ["group", str(source), "--out", str(out), "--parts", "2", "--json"]
    answer = CliRunner().invoke(floorplan_command, arguments)
    assert answer.exit_code == 0, answer.output
    flat, grouped = fp.read(source), fp.read(out / "netlist.pb.txt")
    assert json.loads(answer.stdout)["soft_macros"] == grouped.kinds.count(
        NodeKind.SOFT
    )
    assert NodeKind.CELL not in grouped.kinds
    cells, soft = ((NodeKind.CELL,), flat), ((NodeKind.SOFT,), grouped)
    areas = [
        sum(
            chip.number("width", [chip.blocks[b]])[0]
            * chip.number("height", [chip.blocks[b]])[0]
            for b in chip.blocks_of(*kinds)
        )
        for kinds, chip in (cells, soft)
    ]
    assert areas[1] == pytest.approx(2 * areas[0])
    assert not fp.faults_of(fp.place(grouped, evaluations=2000).placement)


def test_groups_that_miss_a_cell_and_netlists_without_cells_are_refused():
    flat = fp.read(TOYS / "toy_macro_stdcell" / "netlist.pb.txt")
    with pytest.raises(FloorplanError, match="no number for the standard cell"):
        fp.group(flat, groups={})
    with pytest.raises(FloorplanError, match="no standard cells"):
        fp.group(ariane())


@pytest.mark.slow
def test_a_hundred_thousand_nodes_are_grouped_in_two_minutes():
    rng = np.random.default_rng(0)
    size = {"width": 1.0, "height": 1.4}
    nodes = [
        node("clk", "PORT", *(f"c{i}" for i in range(600)), side="LEFT", x=0.0, y=1.0)
    ]
    for i in range(100):
        nodes.append(node(f"M{i}", "MACRO", width=30.0, height=20.0))
        for j in range(50):
            offset = {"macro_name": f"M{i}", "x_offset": 0.0, "y_offset": 0.0}
            nodes.append(
                node(f"M{i}/p{j}", "MACRO_PIN", f"c{rng.integers(95_000)}", **offset)
            )
    for i in range(95_000):
        near = np.clip(i + rng.integers(-60, 60, rng.integers(1, 5)), 0, 94_999)
        nodes.append(node(f"c{i}", "STDCELL", *{f"c{n}" for n in near}, **size))
    netlist = fp.make_netlist(nodes)
    begin = time.process_time()
    found = fp.group(netlist)
    assert time.process_time() - begin < 120
    assert 500 <= found.netlist.kinds.count(NodeKind.SOFT) <= 601
    assert not found.netlist.nodes[0].inputs


def mixed_chip() -> fp.Netlist:
    """Two cells beside a soft macro that is there already."""
    size = {"width": 2.0, "height": 2.0, "x": 5.0, "y": 5.0}
    return fp.make_netlist(
        [
            node("Grp_4", "macro", **size),
            node("Grp_4/p", "macro_pin", "a", macro_name="Grp_4"),
            node("a", "stdcell", "b", **size),
            node("b", "stdcell", "Grp_4/p", **size),
        ]
    )


def test_soft_macros_that_are_there_keep_their_names():
    netlist = mixed_chip()
    grouped = fp.group(netlist, fp.Canvas(20.0, 20.0, 5, 5)).netlist
    soft = [
        n.name
        for n, k in zip(grouped.nodes, grouped.kinds, strict=True)
        if k is NodeKind.SOFT
    ]
    assert soft[0] == "Grp_4"
    assert set(soft[1:]) <= {"Grp_5", "Grp_6"}
    with pytest.raises(FloorplanError, match=r"Grp_4 already.* numbers from 5 on"):
        fp.group(netlist, groups={"a": 4, "b": 4})


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("a\t7\r\nb  7", ""),
        ("a 7\nb 7\na 8", "line 3 of .* puts 'a' in group 8, after group 7"),
        ("a 7\nb 7\nc 7", "name 'c', which is no standard cell"),
        ("a 7\nb", "line 2 of .* is 'b'; wanted: cell 17"),
        ("a 7", "no number for the standard cell 'b'"),
    ],
)
def test_files_of_groups(lines, words, tmp_path):
    file = tmp_path / "groups.txt"
    file.write_bytes(lines.encode())
    if not words:
        assert read_groups(file) == {"a": 7, "b": 7}
        return
    with pytest.raises(FloorplanError, match=words):
        fp.group(mixed_chip(), groups=read_groups(file))
