"""Graphs by hand, and their refusals."""

import pytest

from meshwright.errors import ChipsError
from meshwright.features.chips.graph.chip_graph import ChipEdge, ChipGraph, ChipOp
from meshwright.features.chips.graph.skip_edges import skips_of
from meshwright.features.chips.problem.chip_module import (
    ChipModule,
    module_machine,
    module_of,
)
from meshwright.features.chips.problem.chip_problem import ChipProblem
from tests.features.chips.graphs import chain, module, residual


def test_ops_in_any_order_are_sorted_and_keep_their_edges():
    ops = [ChipOp("last", 1.0), ChipOp("first", 2.0, 8)]
    graph = ChipGraph.of(ops, [ChipEdge(1, 0, 4)])
    assert graph.names == ("first", "last")
    assert graph.edges.tolist() == [[0, 1]]
    assert graph.weight_reads.tolist() == [[0, 0]]


def test_a_cycle_is_refused_with_its_ops():
    ops = [ChipOp(name, 1.0) for name in "abc"]
    edges = [ChipEdge(0, 1), ChipEdge(1, 2), ChipEdge(2, 1)]
    with pytest.raises(ChipsError, match=r"has a cycle, (b -> c -> b|c -> b -> c)"):
        ChipGraph.of(ops, edges)


@pytest.mark.parametrize(
    ("ops", "edges", "words"),
    [
        ([], [], "the graph has no op"),
        ([ChipOp("a", 1.0)], [ChipEdge(0, 3)], "joins no two of the ops 0 to 0"),
        ([ChipOp("a", -1.0)], [], "must be finite and not below 0"),
        ([ChipOp("a", float("nan"))], [], "must be finite and not below 0"),
    ],
)
def test_malformed_graphs_are_refused(ops, edges, words):
    with pytest.raises(ChipsError, match=words):
        ChipGraph.of(ops, edges)


def test_a_module_without_chips_is_refused():
    with pytest.raises(ChipsError, match="a module of 0 chips: give one of 1 to 62"):
        ChipModule(0, 1.0, 1.0)
    with pytest.raises(ChipsError, match="must be above 0"):
        ChipModule(2, 0.0, 1.0)


def test_weights_that_fit_no_split_are_refused():
    graph = ChipGraph.of([ChipOp("big", 1.0, 100)], [])
    with pytest.raises(ChipsError, match="big alone reads 100 bytes of weights"):
        ChipProblem(graph, module(4, memory=60))
    graph = ChipGraph.of(
        [ChipOp("a", 1.0, 50), ChipOp("b", 1.0, 50), ChipOp("c", 1, 50)], []
    )
    with pytest.raises(
        ChipsError, match="the weights take 150 bytes, and 2 chips of 60"
    ):
        ChipProblem(graph, module(2, memory=60))


def test_a_preset_stands_for_all_its_chips():
    assert module_of(module_machine("mcm-36")).num_chips == 36
    assert module_of(module_machine("mcm-36", 12)).num_chips == 12


def test_machines_that_are_no_line_of_chips_are_refused():
    with pytest.raises(ChipsError, match="2 levels of links, so its size is open"):
        module_machine("tpu-v6e")
    with pytest.raises(ChipsError, match="is not one line of chips"):
        module_of(module_machine("h100", 8))


def test_an_op_between_the_ends_of_an_edge_is_found():
    skips = skips_of(residual(2))
    assert skips.ends.tolist() == [[0, 2], [2, 4]]
    assert skips.between.tolist() == [1, 3]
    assert not len(skips_of(chain([1.0, 1.0, 1.0])).ends)
