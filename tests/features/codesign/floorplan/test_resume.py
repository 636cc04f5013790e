"""A folder of a search is gone on with by the same search alone."""

from dataclasses import replace

import pytest

from meshwright.codesign import floorplan as fp
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.placers.search import PlacementSearch
from tests.features.codesign.floorplan.chips import node, random_chip, random_nodes

CANVAS = fp.Canvas(100.0, 80.0, 9, 7)


def search(nodes, folder, canvas=CANVAS, **options):
    netlist = fp.make_netlist(nodes)
    return fp.place(netlist, canvas=canvas, evaluations=500, resume=folder, **options)


def test_another_canvas_or_netlist_of_the_same_counts_is_refused(tmp_path):
    nodes = random_nodes(2)
    search(nodes, tmp_path)
    with pytest.raises(FloorplanError, match="holds a search with another canvas"):
        search(nodes, tmp_path, replace(CANVAS, width=99.0))
    blocked = replace(CANVAS, blockages=(fp.Blockage(0.0, 0.0, 50.0, 40.0, 1.0),))
    with pytest.raises(FloorplanError, match="holds a search with another canvas"):
        search(nodes, tmp_path, blocked)
    wider = [
        replace(n, attributes={**n.attributes, "width": "f: 3.25"})
        if n.name == "M0"
        else n
        for n in nodes
    ]
    with pytest.raises(FloorplanError, match="holds a search with another netlist"):
        search(wider, tmp_path)


def test_a_start_or_other_fixed_blocks_are_refused(tmp_path):
    start = random_chip(2)
    options = {"evaluations": 500, "method": "descent"}
    fp.place(start.netlist, canvas=start, resume=tmp_path, **options)
    with pytest.raises(FloorplanError, match="with start None; this one has True"):
        fp.place(start.netlist, start, resume=tmp_path, **options)
    moved = replace(start, x=start.x + 1.0)
    with pytest.raises(FloorplanError, match="another set of fixed places"):
        fp.place(start.netlist, canvas=moved, resume=tmp_path, **options)
    fp.place(start.netlist, start, resume=tmp_path / "from", **options)
    with pytest.raises(FloorplanError, match="with start True; this one has None"):
        fp.place(start.netlist, canvas=start, resume=tmp_path / "from", **options)


def test_a_search_that_is_killed_before_its_first_round_goes_on(tmp_path):
    def kill(point: fp.SearchPoint) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        search(random_nodes(2), tmp_path, progress=kill)
    assert (tmp_path / "search.npz").exists()
    first = fp.read_placement(
        netlist := fp.make_netlist(random_nodes(2)), tmp_path / "best.plc"
    )
    found = search(random_nodes(2), tmp_path)
    assert found.proxy <= fp.cost(netlist, first).proxy()
    assert (
        found.placement.to_text()
        == search(random_nodes(2), tmp_path / "new").placement.to_text()
    )


@pytest.mark.parametrize("method", ["auto", "anneal", "descent", "start"])
def test_a_search_killed_before_it_is_saved_ends_as_if_undisturbed(
    method, tmp_path, monkeypatch
):
    start, netlist = random_chip(2), fp.make_netlist(random_nodes(2))

    def place(folder):
        options = {"evaluations": 50_000, "resume": folder}
        if method == "start":
            return fp.place(start.netlist, start, **options).placement.to_text()
        found = fp.place(netlist, canvas=CANVAS, method=method, **options)
        return found.placement.to_text()

    wanted, save = place(tmp_path / "whole"), PlacementSearch._save
    for number in range(1, 5):
        left = [number]

        def killed(search, left=left):
            left[0] -= 1
            if not left[0]:
                raise RuntimeError
            save(search)

        monkeypatch.setattr(PlacementSearch, "_save", killed)
        with pytest.raises(RuntimeError):
            place(tmp_path / str(number))
        monkeypatch.undo()
        assert place(tmp_path / str(number)) == wanted, number


def test_folders_that_hold_no_search_are_named(tmp_path):
    nodes, file = [node("M", "MACRO", width=4.0, height=2.0)], tmp_path / "file"
    file.write_text("")
    with pytest.raises(FloorplanError, match=r"cannot make the folder .*file"):
        search(nodes, file)
    (tmp_path / "search.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(FloorplanError, match="cannot resume from"):
        search(nodes, tmp_path)
