"""Costs equal the published ones, a plain Python version, and themselves after moves."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from meshwright.codesign import floorplan as fp
from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.netlist.netlist import NodeKind
from tests.features.codesign.floorplan.chips import (
    ARIANE,
    TILES,
    TOYS,
    ariane,
    random_chip,
    random_nodes,
)
from tests.features.codesign.floorplan.plain_costs import plain_costs

NAMES = ("wirelength", "density", "congestion")


def three(found):
    return tuple(getattr(found, name) for name in NAMES)


def test_costs_of_macro_tiles_equal_those_that_circuit_training_asserts():
    netlist = fp.read(TILES)
    found = fp.cost(netlist, fp.start_of(netlist))
    asserted = (0.007745966692414834, 0.3570806661517036, 1.124405186246434)
    assert three(found) == pytest.approx(asserted, abs=1e-9)
    assert found.wires == pytest.approx(5400, abs=1e-9)
    assert netlist.area == pytest.approx(250000, abs=1e-9)


@pytest.mark.parametrize(
    ("file", "published", "digits"),
    [
        ("legalized.plc", (0.0736, 0.4988, 0.7259), 4),
        # 18 macros leave the canvas; what lies outside counts in the nearest cell.
        ("initial.plc", (0.04972, 0.60673, 0.71567), 5),
    ],
)
def test_costs_of_ariane_equal_the_published_ones(file, published, digits):
    placement = fp.read_placement(ariane(), ARIANE / file)
    found = fp.cost(ariane(), placement)
    assert tuple(round(value, digits) for value in three(found)) == published
    assert len(found.outside) == (18 if file == "initial.plc" else 0)
    assert found.overlaps == ()


def test_densest_cell_of_a_grid_of_four_cells_counts():
    folder = TOYS / "sample_clustered"
    netlist = fp.read(folder / "netlist.pb.txt")
    found = fp.cost(netlist, fp.read_placement(netlist, folder / "initial.plc"))
    # The header says 0.2305, from before the factor of one half.
    assert round(2 * found.density, 4) == 0.2305
    assert found.cell_density[0, 0] == 0


@pytest.mark.parametrize("smoothing", [0, 2])
def test_costs_equal_plain_python_on_random_chips(smoothing):
    for seed in range(12):
        placement = random_chip(seed, smoothing)
        rng = random.Random(seed)
        turns = tuple(
            o if o == "-" else rng.choice(("N", "FN", "S", "FS"))
            for o in placement.orientations
        )
        placement = replace(placement, orientations=turns)
        found = fp.cost(placement.netlist, placement)
        plain = plain_costs(placement.netlist, placement)
        assert three(found) == pytest.approx(plain, abs=1e-12)


def test_plain_costs_of_ariane_agree():
    placement = fp.read_placement(ariane(), ARIANE / "legalized.plc")
    plain = plain_costs(ariane(), placement)
    assert three(fp.cost(ariane(), placement)) == pytest.approx(plain, abs=1e-12)


def walk(placement, moves, seed=0):
    """An evaluator after random moves, some of which were undone."""
    evaluator = fp.Evaluator(placement.netlist, placement)
    rng, netlist, canvas = random.Random(seed), placement.netlist, placement.canvas
    hard = netlist.blocks_of(NodeKind.MACRO)
    both = [*hard, *netlist.blocks_of(NodeKind.SOFT)]
    for _ in range(moves):
        kind = rng.randrange(5)
        if kind == 0:
            place = rng.uniform(-5, canvas.width + 5), rng.uniform(0, canvas.height)
            evaluator.move(rng.choice(both), *place)
        elif kind == 1:
            evaluator.shift(rng.choice(both), rng.gauss(0, 5), rng.gauss(0, 5))
        elif kind == 2:
            evaluator.swap(*rng.sample(both, 2))
        elif kind == 3:
            evaluator.flip(rng.choice(hard), rng.choice(("N", "FN", "S", "FS")))
        else:
            before = evaluator.proxy
            evaluator.swap(*rng.sample(both, 2))
            assert evaluator.undo() == pytest.approx(before, abs=1e-12)
    return evaluator


@pytest.mark.parametrize("smoothing", [0, 2])
def test_incremental_costs_equal_full_ones_after_ten_thousand_moves(smoothing):
    evaluator = walk(random_chip(3, smoothing), 10_000)
    now = three(evaluator)
    placement = evaluator.placement
    assert now == pytest.approx(three(fp.cost(placement.netlist, placement)), abs=1e-9)
    assert now == pytest.approx(plain_costs(placement.netlist, placement), abs=1e-9)


def test_incremental_costs_of_ariane_equal_full_ones_after_ten_thousand_moves():
    evaluator = walk(fp.read_placement(ariane(), ARIANE / "legalized.plc"), 10_000)
    now = three(evaluator)
    assert now == pytest.approx(three(fp.cost(ariane(), evaluator.placement)), abs=1e-9)


def test_order_of_nodes_is_irrelevant():
    nodes = random_nodes(5)
    canvas = fp.Canvas(100.0, 80.0, 9, 7, smoothing=1)
    costs = []
    for seed in range(3):
        shuffled = random.Random(seed).sample(nodes, len(nodes))
        netlist = fp.make_netlist(shuffled)
        costs.append(three(fp.cost(netlist, fp.start_of(netlist, canvas))))
    assert costs[0] == pytest.approx(costs[1], abs=1e-12)
    assert costs[0] == pytest.approx(costs[2], abs=1e-12)


def test_mirrored_chips_have_the_same_wirelength_and_density():
    """Routes and blocked wires have a direction in both public evaluators."""
    placement = random_chip(7)
    flipped = {"N": "FN", "-": "-"}
    mirrored = replace(
        placement,
        x=placement.canvas.width - placement.x,
        orientations=tuple(flipped[o] for o in placement.orientations),
    )
    costs = [fp.cost(p.netlist, p) for p in (placement, mirrored)]
    assert costs[0].wirelength == pytest.approx(costs[1].wirelength, abs=1e-12)
    assert costs[0].density == pytest.approx(costs[1].density, abs=1e-12)


def test_macros_that_touch_do_not_overlap_and_the_least_overlap_counts():
    placement = fp.start_of(fp.read(TILES))
    x = np.array([0.1 + 50 * (i % 10) for i in range(100)])
    y = np.array([0.3 + 50 * (i // 10) for i in range(100)])
    touching = replace(placement, x=x, y=y)
    assert fp.overlaps_of(touching)[1] == ()
    x = x.copy()
    x[0] += 1e-12
    overlaps = fp.overlaps_of(replace(touching, x=x))[1]
    assert len(overlaps) == 1
    assert math.isclose(overlaps[0].area, 50e-12, rel_tol=1e-3)


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (lambda ev: ev.flip("M0", "E"), "not turned by 90 degrees"),
        (lambda ev: ev.move("P0", 1, 1), "'P0' is fixed"),
        (lambda ev: ev.move("M99", 1, 1), "no block 'M99'"),
        (lambda ev: ev.undo(), "no move to undo"),
    ],
)
def test_impossible_moves_are_refused(move, words):
    placement = random_chip(0)
    with pytest.raises(FloorplanError, match=words):
        move(fp.Evaluator(placement.netlist, placement))


def test_negative_weights_are_refused():
    placement = random_chip(0)
    with pytest.raises(FloorplanError, match="0 or more"):
        fp.cost(placement.netlist, placement).proxy((1, -0.5, 0.5))
