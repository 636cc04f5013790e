"""Files of data sets: TpuGraphs' samples, round trips, corrupt files."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.data_files import (
    read_folder,
    read_npz,
    read_tuning_proto,
    write_npz,
)
from meshwright.features.tune.learned.hlo_graph import HloGraph
from meshwright.features.tune.learned.measured_graph import (
    Collection,
    MeasuredGraph,
    Provenance,
)
from tests.features.tune.learned.synthetic import kernel, layout_program

DATA = Path(__file__).parents[3] / "data" / "tpugraphs"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("tpu") / "unpacked.pb"
    packed = (DATA / "module_tuning_data_layout.pb.gz").read_bytes()
    path.write_bytes(gzip.decompress(packed))
    return read_tuning_proto(path)[0]


def test_the_tpu_kernels_have_752_valid_runs():
    kernels = read_folder(DATA / "op_tuning_data.pb")
    assert len(kernels) == 15
    assert sum(k.num_configs for k in kernels) == 752
    assert sum(len(k.provenance.errors) for k in kernels) == 2
    by_name = {k.name: k for k in kernels}
    fused = by_name["fusion.191"]
    assert fused.graph.num_nodes == 31
    assert fused.num_configs == 579
    assert fused.runtime_ns.min() == 137_344
    assert fused.targets.max() / fused.targets.min() == pytest.approx(28.86, abs=0.01)
    assert fused.config_feat[0, :8].tolist() == [3, 1, 24, 3, 0, 0, 31, 216]
    assert fused.config_feat[0, 8:14].tolist() == [12, 4, 4, 3, 0, 0]
    assert by_name["fusion.232"].targets[0] == 1  # its first run is the default
    assert by_name["reshape.37"].config_feat.tolist() == [[0] * 24] * 3


def test_the_tpu_program_has_122_runs_of_which_10_failed(program):
    assert program.collection is Collection.LAYOUT
    assert program.num_configs == 112
    assert len(program.provenance.errors) == 10
    assert program.config_feat.shape == (112, 62, 18)
    assert program.config_nodes.tolist() == program.graph.configurable.tolist()
    times = program.targets
    assert times.max() / times.min() == pytest.approx(1.016, abs=0.001)
    assert 910e6 < times.min() < times.max() < 926e6
    assert program.default_config == program.provenance.default


@st.composite
def measured_graphs(draw):
    n, m, c = draw(st.integers(1, 6)), draw(st.integers(0, 8)), draw(st.integers(1, 4))
    floats = st.floats(-1e6, 1e6, width=32)
    node_feat = draw(arrays(np.float32, (n, 140), elements=floats, fill=floats))
    opcodes = draw(arrays(np.uint8, n, elements=st.integers(0, 120)))
    edges = draw(arrays(np.int64, (m, 2), elements=st.integers(0, n - 1)))
    graph = HloGraph(node_feat, opcodes, edges, np.array([0, n]))
    times = draw(arrays(np.int64, c, elements=st.integers(1, 2**40)))
    if draw(st.booleans()):
        feats = draw(arrays(np.float32, (c, 24), elements=floats, fill=floats))
        defaults = draw(arrays(np.int64, c, elements=st.integers(1, 2**40)))
        return MeasuredGraph("it", graph, feats, None, times, defaults)
    nodes = np.arange(draw(st.integers(1, n)))
    layouts = st.integers(-1, 5).map(np.float32)
    feats = draw(
        arrays(np.float32, (c, len(nodes), 18), elements=layouts, fill=layouts)
    )
    passes = tuple(tuple(int(t) for t in times) for _ in range(2))
    provenance = Provenance("xla", "1", "host", "c", 0, passes, (("3", "error"),))
    return MeasuredGraph("it", graph, feats, nodes, times, provenance=provenance)


@given(measured_graphs())
@settings(max_examples=25)
def test_what_is_written_is_read_back(tmp_path_factory, measured):
    folder = tmp_path_factory.mktemp("npz")
    found = read_npz(write_npz(folder, measured))
    assert found.name == measured.name
    assert found.provenance == measured.provenance
    for name in ("node_feat", "node_opcode", "edge_index", "node_splits"):
        one, other = getattr(found.graph, name), getattr(measured.graph, name)
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    for name in ("config_feat", "config_nodes", "runtime_ns", "normalizer_ns"):
        np.testing.assert_array_equal(getattr(found, name), getattr(measured, name))


@pytest.mark.parametrize(
    ("measured", "shapes"),
    [
        (
            kernel(5),
            {
                "node_feat": ("float32", (4, 140)),
                "node_opcode": ("uint8", (4,)),
                "edge_index": ("int64", (3, 2)),
                "config_feat": ("float32", (5, 24)),
                "config_runtime": ("int64", (5,)),
                "config_runtime_normalizers": ("int64", (5,)),
            },
        ),
        (
            layout_program(12, 5),
            {
                "node_feat": ("float32", (12, 140)),
                "node_opcode": ("uint8", (12,)),
                "edge_index": ("int64", (11, 2)),
                "node_config_ids": ("int64", (6,)),
                "node_config_feat": ("float32", (5, 6, 18)),
                "node_splits": ("int64", (1, 2)),
                "config_runtime": ("int64", (5,)),
            },
        ),
    ],
)
def test_files_have_exactly_the_published_arrays(tmp_path, measured, shapes):
    with np.load(write_npz(tmp_path, measured)) as archive:
        found = {key: (str(a.dtype), a.shape) for key, a in archive.items()}
    assert found == shapes


def test_files_with_the_readmes_dtypes_and_no_runtimes_are_read(tmp_path):
    measured = layout_program(12, 5)
    with np.load(write_npz(tmp_path, measured)) as archive:
        published = dict(archive)
    del published["config_runtime"]
    for key in ("edge_index", "node_opcode", "node_config_ids"):
        published[key] = published[key].astype(np.int32)
    np.savez(tmp_path / "test.npz", **published)
    found = read_npz(tmp_path / "test.npz")
    assert found.runtime_ns is None
    np.testing.assert_array_equal(found.config_feat, measured.config_feat)
    with pytest.raises(LearnedError, match=r"no runtimes.*train and valid"):
        found.targets  # noqa: B018


def test_corrupt_files_are_refused_with_what_is_wrong(tmp_path):
    path = write_npz(tmp_path, kernel(5))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LearnedError, match=r"kernel0.npz is no readable npz file"):
        read_npz(path)
    damaged = bytearray(whole)
    damaged[len(whole) // 4] ^= 0xFF
    path.write_bytes(bytes(damaged))
    with pytest.raises(LearnedError, match="no readable npz file"):
        read_npz(path)
    np.savez(path, node_feat=np.zeros((3, 140)))
    with pytest.raises(
        LearnedError, match="lacks node_opcode, edge_index, config_feat"
    ):
        read_npz(path)
    sample = tmp_path / "half.pb"
    sample.write_bytes((DATA / "op_tuning_data.pb").read_bytes()[:30_000])
    with pytest.raises(LearnedError, match=r"half.pb is no valid"):
        read_folder(sample)
    with pytest.raises(LearnedError, match="no file or folder"):
        read_folder(tmp_path / "missing")


def test_graphs_that_do_not_fit_together_are_refused(tmp_path):
    measured = layout_program(12, 5)
    with pytest.raises(LearnedError, match=r"expected node numbers from 0 to 11"):
        replace(measured.graph, edge_index=np.array([[12, 0]]))
    with pytest.raises(LearnedError, match="expected positive times"):
        replace(measured, runtime_ns=np.array([1, 2, 0, 4, 5]))
    with pytest.raises(LearnedError, match=r"expected \(3, 18\)"):
        replace(measured, config_nodes=np.arange(3))
    with pytest.raises(LearnedError, match=r"4,. times for 5 configurations"):
        replace(measured, runtime_ns=np.arange(1, 5))


def test_the_default_is_known_by_its_layouts():
    measured = layout_program(12, 5)
    assert measured.default_config == 0
    assert measured.speedup() >= 1


def test_the_spread_is_that_of_the_passes():
    provenance = Provenance("xla", pass_ns=((100, 50), (110, 50)))
    assert provenance.spread == pytest.approx((0.1, 0))
