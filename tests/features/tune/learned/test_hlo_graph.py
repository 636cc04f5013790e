"""HLO modules as graphs: instructions, edges and features against hand-made ones."""

import gzip
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.features import (
    layout_features,
    mark_missing_dims,
    tile_features,
)
from meshwright.features.tune.learned.hlo import hlo_proto
from meshwright.features.tune.learned.hlo.hlo_proto import decode
from meshwright.features.tune.learned.hlo.opcodes import OPCODES, opcode_number
from meshwright.features.tune.learned.hlo_graph import graph_of_proto, hlo_graph

DATA = Path(__file__).parents[3] / "data" / "tpugraphs"

EMPTY_PRODUCTS = (28, 44, 52, 60, 68, 76, 84, 112, 116, 120, 124, 128, 132)
"""Columns with the product of a list, which is 1 if the list is empty."""


def nodes_of(graph, opcode):
    return np.flatnonzero(graph.node_opcode == OPCODES[opcode])


def row(**columns):
    """A row of features by column, 0 or an empty product elsewhere."""
    expected = np.zeros(140, np.float32)
    expected[list(EMPTY_PRODUCTS)] = 1
    for column, value in columns.items():
        expected[int(column[1:])] = value
    return expected


def lowered(fn, *shapes):
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(fn).lower(*args)


def test_a_product_has_the_features_that_its_shape_gives():
    graph = hlo_graph(lowered(jnp.matmul, (4, 8), (8, 16)))
    (dot,) = nodes_of(graph, "dot")
    assert len(graph.node_opcode) == 3
    expected = row(c0=1, c13=1, c21=4, c22=16, c27=20, c28=64, c134=1)
    expected[107:109] = graph.node_feat[dot, 107:109]  # group counts, as XLA sets them
    np.testing.assert_array_equal(graph.node_feat[dot], expected)
    assert graph.edge_index.tolist() == [[dot, 0], [dot, 1]]
    assert graph.node_feat[:, 30].tolist() == [0, 1, 0]  # parameter numbers


def test_a_convolution_has_window_and_dimension_numbers():
    def convolve(x, w):
        return jax.lax.conv_general_dilated(
            x,
            w,
            (2, 1),
            [(1, 2), (3, 4)],
            rhs_dilation=(1, 2),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    graph = hlo_graph(lowered(convolve, (2, 16, 18, 3), (3, 5, 3, 7)))
    (node,) = nodes_of(graph, "convolution")
    features = graph.node_feat[node]
    assert features[37:45].tolist() == [3, 5, 0, 0, 0, 0, 8, 15]  # size
    assert features[45:53].tolist() == [2, 1, 0, 0, 0, 0, 3, 2]  # stride
    assert features[53:61].tolist() == [1, 3, 0, 0, 0, 0, 4, 3]  # low padding
    assert features[61:69].tolist() == [2, 4, 0, 0, 0, 0, 6, 8]  # high padding
    assert features[69:77].tolist() == [1, 2, 0, 0, 0, 0, 3, 2]  # window dilation
    assert features[77:85].tolist() == [1, 1, 0, 0, 0, 0, 2, 1]  # base dilation
    assert features[85:93].tolist() == [0, 0, 0, 0, 0, 0, 0, 2]  # no reversals, of 2
    assert features[93:99].tolist() == [0, 3, 1, 2, 0, 0]  # input: batch, feature, H, W
    assert features[99:105].tolist() == [2, 3, 0, 1, 0, 0]  # kernel: in, out, H, W
    assert features[105:109].tolist() == [0, 3, 1, 1]  # output, groups
    assert graph.configurable.tolist() == [node]


def test_slices_pads_transposes_and_sorts_have_their_numbers():
    def fn(x):
        part = x[1:7:2, 3:9]
        grown = jax.lax.pad(part, 0.0, [(1, 2, 0), (3, 4, 0)])
        return jax.lax.sort(jnp.transpose(grown), is_stable=True)

    graph = hlo_graph(lowered(fn, (8, 10)))
    features = graph.node_feat
    sliced, padded = features[nodes_of(graph, "slice")[0]], nodes_of(graph, "pad")[0]
    assert sliced[109:121].tolist() == [1, 3, 4, 3, 2, 1, 3, 2, 7, 9, 16, 63]
    assert features[padded, 125:133].tolist() == [1, 3, 4, 3, 2, 4, 6, 8]
    turned = features[nodes_of(graph, "transpose")[0]]
    assert turned[31:37].tolist() == [1, 0, 0, 0, 0, 0]
    assert features[nodes_of(graph, "sort")[0], 133] == 1
    taken = jax.jit(lambda x, i: jax.lax.dynamic_slice(x, (i, i), (2, 5)))
    graph = hlo_graph(taken.lower(jnp.ones((8, 10)), 1))
    dynamic = graph.node_feat[nodes_of(graph, "dynamic-slice")[0]]
    assert dynamic[121:125].tolist() == [2, 5, 7, 10]


def test_edges_join_a_user_with_operands_once_and_with_called_roots():
    graph = hlo_graph(lowered(lambda x: jnp.sum(x + x), (4,)))
    (reduce,) = nodes_of(graph, "reduce")
    added = nodes_of(graph, "add")
    is_root = graph.node_feat[:, 0] > 0
    (inner,) = [n for n in added if is_root[n]]
    (outer,) = [n for n in added if not is_root[n]]
    edges = {tuple(edge) for edge in graph.edge_index.tolist()}
    x = nodes_of(graph, "parameter")[-1]
    assert (outer, x) in edges
    assert (reduce, inner) in edges  # the root of the computation that it calls
    assert (reduce, outer) in edges
    assert len(edges) == len(graph.edge_index)


def test_compiled_modules_and_encoded_ones_give_the_graph_of_the_program():
    staged = lowered(lambda x, w: jnp.tanh(x @ w), (4, 8), (8, 16))
    encoded = staged.compiler_ir("hlo").as_serialized_hlo_module_proto()
    one, other = hlo_graph(staged), hlo_graph(encoded)
    np.testing.assert_array_equal(one.node_feat, other.node_feat)
    assert hlo_graph(staged.compile()).num_nodes >= 3


def test_instruction_ids_of_64_bits_are_keys_only():
    module = tiny_module()
    graph = graph_of_proto(decode("HloModule", module.SerializeToString(), "it"))
    assert graph.edge_index.tolist() == [[1, 0]]


def tiny_module(opcode="tanh"):
    """A module of a parameter and one op, whose ids are larger than 32 bits."""
    module = decode("HloModule", b"\x0a\x01m", "m")
    body = module.computations.add(name="main", id=1, root_id=(1 << 32) + 1)
    body.instructions.add(name="x", opcode="parameter", id=1 << 32)
    body.instructions.add(
        name="y", opcode=opcode, id=(1 << 32) + 1, operand_ids=[1 << 32]
    )
    return module


def test_an_unknown_opcode_is_named_with_what_to_do():
    with pytest.raises(
        LearnedError, match=r"unknown HLO opcode 'tanhh'.*'tanh'.*append"
    ):
        hlo_graph(tiny_module("tanhh").SerializeToString())


def test_a_reference_to_a_missing_instruction_is_an_error():
    module = tiny_module()
    module.computations[0].instructions[1].operand_ids[0] = 5
    with pytest.raises(LearnedError, match="refers to id 5"):
        hlo_graph(module.SerializeToString())


def test_corrupt_modules_and_other_objects_are_refused():
    encoded = tiny_module().SerializeToString()
    with pytest.raises(LearnedError, match="no valid HloModule"):
        hlo_graph(encoded[:-3])
    with pytest.raises(LearnedError, match="is empty"):
        hlo_graph(b"")
    with pytest.raises(LearnedError, match="no HLO module"):
        hlo_graph("HloModule m")


def test_without_protobuf_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    hlo_proto._message_classes.cache_clear()
    with pytest.raises(LearnedError, match=r"meshwright\[learned\]"):
        hlo_graph(b"\x0a\x01m")
    monkeypatch.undo()
    assert decode("HloModule", b"\x0a\x01m", "m").name == "m"


def test_opcode_numbers_are_those_of_tpu_graphs():
    published = {
        "abs": 1, "broadcast": 13, "constant": 24, "convolution": 26, "copy": 27,
        "custom-call": 31, "dot": 34, "fusion": 41, "get-tuple-element": 45, "iota": 48,
        "parameter": 63, "reduce": 70, "reshape": 75, "select": 83, "transpose": 98,
        "tuple": 100, "while": 102, "opt-barrier": 114, "tan": 120,
    }  # fmt: skip
    assert {name: opcode_number(name) for name in published} == published
    assert min(OPCODES.values()) == 1
    assert len(set(OPCODES.values())) == len(OPCODES) < 256


def test_the_tpu_program_has_the_published_counts():
    encoded = gzip.decompress((DATA / "module_tuning_data_layout.pb.gz").read_bytes())
    module = decode("ModuleTuningData", encoded, "the sample").module
    graph = graph_of_proto(module)
    assert graph.num_nodes == 3163
    assert len(module.computations) == 143
    chosen = graph.node_opcode[graph.configurable]
    assert (chosen == OPCODES["convolution"]).sum() == 53
    assert (chosen == OPCODES["reshape"]).sum() == 9
    assert graph.node_feat[:, 2:21].sum(axis=1).max() == 1  # one element type each
    assert graph.node_splits[0] == 0
    assert graph.node_splits[-1] == 3163
    ends = np.cumsum([len(c.instructions) for c in module.computations])
    named = [
        any(word in c.name for word in ("cluster", "while", "cond"))
        for c in module.computations
    ]
    assert graph.node_splits[1:-1].tolist() == ends[named].tolist()


def test_tilings_have_sums_and_products_and_no_bounds_are_zero():
    features = tile_features((), (12, 4, 4, 3), (2, 3, 4, 5, 6, 7, 8))
    assert features[:8].tolist() == [0] * 8
    assert features[8:16].tolist() == [12, 4, 4, 3, 0, 0, 23, 576]
    assert features[16:].tolist() == [2, 3, 4, 5, 6, 7, 35, 40320]


def test_layouts_are_padded_with_minus_one():
    features = layout_features([(1, 0), (), (3, 0, 2, 1)])
    assert features[:6].tolist() == [1, 0, -1, -1, -1, -1]
    assert features[6:12].tolist() == [-1] * 6
    assert features[12:].tolist() == [3, 0, 2, 1, -1, -1]


def test_missing_dims_of_a_nodes_layout_are_told_from_dim_zero():
    graph = hlo_graph(lowered(lambda x: jnp.sum(x, 0), (4, 8)))
    marked = mark_missing_dims(graph.node_feat)
    (reduce,) = nodes_of(graph, "reduce")
    matrix = nodes_of(graph, "parameter")[-1]
    assert marked[reduce, 134:].tolist() == [0, -1, -1, -1, -1, -1]
    assert marked[matrix, 134:].tolist() == [1, 0, -1, -1, -1, -1]
    np.testing.assert_array_equal(marked[:, :134], graph.node_feat[:, :134])
