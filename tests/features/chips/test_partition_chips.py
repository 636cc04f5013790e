"""`mw.partition_chips` from functions, programs and graphs; results and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import meshwright as mw
from meshwright.errors import ChipsError
from meshwright.features.chips.chip_partition import ChipPartition
from meshwright.features.chips.constraints.checker import violations
from meshwright.features.chips.graph.chip_graph import ChipEdge, ChipGraph, ChipOp
from meshwright.features.chips.problem.chip_module import ChipModule
from meshwright.features.chips.solve import partition_graph
from meshwright.program.capture import capture


def layers(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return x


ARGS = (
    [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * 8,
    jax.ShapeDtypeStruct((16, 256), jnp.float32),
)


@pytest.fixture(scope="module")
def found():
    return mw.partition_chips(layers, "mcm-4", *ARGS, seconds=2)


def test_equal_layers_are_spread_evenly_and_that_is_checked(found):
    assert found.num_used == 4
    assert found.throughput * found.graph.seconds.sum() > 3.5
    chips = np.array(found.chips)
    assert not list(violations(found.graph, chips, 4))
    assert found.load.memory_bytes.max() >= 2 * 256 * 256 * 4
    assert found.bottleneck_s >= found.bound_s


def test_it_prints_in_about_ten_lines(found):
    text = str(found)
    assert len(text.splitlines()) <= 10
    for word in ("throughput", "bottleneck", "memory", "mcm-4, 4 chips of 32.0 MiB"):
        assert word in text


def test_json_is_read_back_and_checked(found):
    text = found.to_json()
    again = ChipPartition.from_json(text)
    assert again.chips == found.chips
    assert again.to_json() == text
    start, end = (
        f'"chips": [\n  {found.chips[0]}',
        f'"chips": [\n  {found.chips[0] + 2}',
    )
    with pytest.raises(
        ChipsError, match="this is no valid partition: data flows backw"
    ):
        ChipPartition.from_json(text.replace(start, end))
    with pytest.raises(ChipsError, match="this is no saved partition"):
        ChipPartition.from_json("{}")


def test_the_page_names_every_op_and_draws_every_chip(found, tmp_path):
    page = found.report(tmp_path / "page.html").read_text()
    assert page == found._repr_html_()
    assert page.count("<rect") == 4 + 3 + 4
    assert page.count("dot_general") >= 8
    assert found.to_csv().count("\n") == found.graph.num_ops + 1


def test_a_program_with_weights_by_position_gives_the_same_graph(found):
    program = capture(layers, ARGS).program
    same = mw.partition_chips(program, "mcm-4", weights=range(8), seconds=2)
    assert same.graph.weight_bytes.sum() == found.graph.weight_bytes.sum()
    assert same.bottleneck_s == found.bottleneck_s
    with pytest.raises(ChipsError, match="weights has 40 of inputs 0 to 8"):
        mw.partition_chips(program, "mcm-4", weights=[40])


def test_inputs_of_the_first_argument_are_weights_if_no_name_matches():
    def unnamed(first, x):
        return x @ (first * 2.0)

    args = jnp.ones((256, 256)), jnp.ones((4, 256))
    found = mw.partition_chips(unnamed, "mcm-4", *args, seconds=1)
    assert [name.split(" ")[0] for name in found.graph.names] == ["dot_general"]


def test_a_graph_by_hand_is_taken():
    ops = [ChipOp(f"op {i}", 1.0) for i in range(4)]
    graph = ChipGraph.of(ops, [ChipEdge(i, i + 1) for i in range(3)])
    found = mw.partition_chips(graph, "mcm-4", seconds=1)
    assert found.is_optimal
    assert found.chips == (0, 1, 2, 3)


def test_a_small_graph_is_proven_optimal_by_cp_sat():
    ops = [ChipOp(f"op {i}", s) for i, s in enumerate([3.0, 3.0, 2.0, 2.0, 2.0])]
    edges = [ChipEdge(0, i) for i in range(1, 5)]
    found = partition_graph(
        ChipGraph.of(ops, edges), ChipModule(3, 1e9, 1e9), seconds=20
    )
    assert found.is_optimal
    assert found.bottleneck_s == pytest.approx(5.0)


def test_memory_that_no_partition_fits_is_said():
    graph = ChipGraph.of(
        [ChipOp("a", 1.0, 8), ChipOp("b", 1.0, 8)], [ChipEdge(0, 1, 5)]
    )
    with pytest.raises(
        ChipsError, match="no partition onto 2 chips was found in which"
    ):
        partition_graph(graph, ChipModule(2, 12, 1.0), seconds=1)


@pytest.mark.parametrize(
    ("program", "options", "words"),
    [
        (3, {}, "wanted a function, a program or a ChipGraph, got int"),
        (layers, {"seconds": 0}, "seconds is 0: give a positive number"),
    ],
)
def test_misuse_is_refused(program, options, words):
    with pytest.raises(ChipsError, match=words):
        mw.partition_chips(program, "mcm-4", *ARGS, **options)
