"""Reading and writing data sets: the npz files and raw protobufs of TpuGraphs.

A file `NAME.npz` has exactly the arrays that TpuGraphs publishes, so that its own loaders
read it. The `Provenance`, for which that format has no place, is beside it in `NAME.json`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import LearnedError
from meshwright.features.tune.learned.features import layout_features, tile_features
from meshwright.features.tune.learned.hlo.hlo_proto import decode
from meshwright.features.tune.learned.hlo_graph import HloGraph, graph_of_proto
from meshwright.features.tune.learned.measured_graph import (
    PROVENANCE,
    TPU_GRAPHS,
    Collection,
    MeasuredGraph,
    Provenance,
)
from meshwright.learn.arrays import read_arrays

_GRAPH_KEYS = ("node_feat", "node_opcode", "edge_index")
_KEYS = {
    Collection.TILE: (*_GRAPH_KEYS, "config_feat"),
    Collection.LAYOUT: (*_GRAPH_KEYS, "node_config_ids", "node_config_feat"),
}


def read_folder(folder: Path) -> list[MeasuredGraph]:
    """The measured graphs of all npz and pb files below a folder, or of one file."""
    if not folder.exists():
        raise LearnedError(f"there is no file or folder {folder}")
    files = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    graphs: list[MeasuredGraph] = []
    for file in files:
        if file.suffix == ".npz":
            graphs.append(read_npz(file))
        elif file.suffix == ".pb":
            graphs.extend(read_tuning_proto(file))
    if not graphs:
        raise LearnedError(
            f"{folder} has no graphs: expected .npz files as TpuGraphs publishes them, or "
            "its .pb files"
        )
    return graphs


def read_npz(path: Path) -> MeasuredGraph:
    """The measured graph of one npz file; its arrays decide between tile and layout."""
    arrays = read_arrays(path)
    is_layout = "node_config_feat" in arrays
    collection = Collection.LAYOUT if is_layout else Collection.TILE
    missing = [key for key in _KEYS[collection] if key not in arrays]
    if missing:
        raise LearnedError(
            f"{path} lacks {', '.join(missing)}: expected the keys of TpuGraphs' "
            f"{collection.value} collection, found {', '.join(sorted(arrays))}"
        )
    opcodes = arrays["node_opcode"].astype(np.uint8)
    splits = arrays.get("node_splits", np.array([0, len(opcodes)]))
    try:
        graph = HloGraph(
            arrays["node_feat"].astype(np.float32),
            opcodes,
            arrays["edge_index"].astype(np.int64).reshape(-1, 2),
            splits.astype(np.int64).reshape(-1),
        )
        return MeasuredGraph(
            path.stem,
            graph,
            arrays["node_config_feat" if is_layout else "config_feat"].astype(
                np.float32
            ),
            arrays["node_config_ids"].astype(np.int64) if is_layout else None,
            _times(arrays, "config_runtime"),
            _times(arrays, "config_runtime_normalizers"),
            _read_provenance(path.with_suffix(".json")),
        )
    except LearnedError as error:
        raise LearnedError(f"{path}: {error}") from error


def write_npz(folder: Path, measured: MeasuredGraph) -> Path:
    """Write `NAME.npz` in TpuGraphs' format, and `NAME.json` with the provenance."""
    graph = measured.graph
    arrays: dict[str, NDArray[Any]] = {
        "node_feat": graph.node_feat,
        "node_opcode": graph.node_opcode,
        "edge_index": graph.edge_index,
    }
    if measured.config_nodes is None:
        arrays["config_feat"] = measured.config_feat
    else:
        arrays["node_config_ids"] = measured.config_nodes
        arrays["node_config_feat"] = measured.config_feat
        arrays["node_splits"] = graph.node_splits[None]
    if measured.runtime_ns is not None:
        arrays["config_runtime"] = measured.runtime_ns
    if measured.normalizer_ns is not None:
        arrays["config_runtime_normalizers"] = measured.normalizer_ns
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{measured.name}.npz"
    np.savez_compressed(path, allow_pickle=False, **arrays)
    text = measured.provenance.to_json()
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    return path


def read_tuning_proto(path: Path) -> list[MeasuredGraph]:
    """The measured graphs of one of TpuGraphs' raw protobufs: a program, or many kernels.

    Runs that failed, or that have no time, are left out, as TpuGraphs leaves them out.
    """
    encoded = path.read_bytes()
    if decode("TuningFile", encoded, str(path)).runs:  # `TuningData` has modules alone
        program = decode("ModuleTuningData", encoded, str(path))
        return [_measured_program(program, path)]
    kernels = decode("TuningData", encoded, str(path)).modules
    if not any(kernel.runs for kernel in kernels):
        raise LearnedError(
            f"{path} has no runs: it is neither TuningData nor ModuleTuningData"
        )
    return [_measured_kernel(kernel) for kernel in kernels]


def _measured_kernel(kernel: Any) -> MeasuredGraph:
    runs = [run for run in kernel.runs if _is_valid(run)]
    tilings = [run.op_config.tile_size_config for run in runs]
    provenance = _provenance(kernel.runs)
    if provenance.default is None:
        raise LearnedError(
            f"kernel {kernel.module.name} has no valid run of the default configuration"
        )
    default_ns = runs[provenance.default].profile.compute_time_ns
    return MeasuredGraph(
        kernel.module.name,
        graph_of_proto(kernel.module),
        np.stack(
            [
                tile_features(t.kernel_bounds, t.output_bounds, t.input_bounds)
                for t in tilings
            ]
        ),
        None,
        np.array([run.profile.compute_time_ns for run in runs], np.int64),
        np.full(len(runs), default_ns, np.int64),
        provenance,
    )


def _measured_program(program: Any, path: Path) -> MeasuredGraph:
    runs = [run for run in program.runs if _is_valid(run)]
    nodes = [run.module_config.layout_config.nodes for run in runs]
    wrong = {len(layouts) for layouts in nodes} - {len(program.config_index_to_node)}
    if wrong:
        raise LearnedError(
            f"{path}: runs with layouts of {wrong.pop()} nodes for "
            f"{len(program.config_index_to_node)} configurable ones: the file is corrupt"
        )
    return MeasuredGraph(
        path.stem,
        graph_of_proto(program.module),
        np.stack([np.stack(list(map(_node_layouts, layouts))) for layouts in nodes]),
        np.array(program.config_index_to_node, np.int64),
        np.array([run.profile.compute_time_ns for run in runs], np.int64),
        provenance=_provenance(program.runs),
    )


def _node_layouts(node: Any) -> NDArray[np.float32]:
    return layout_features([tensor.dims for tensor in node.tensors])


def _is_valid(run: Any) -> bool:
    return not run.error and run.profile.compute_time_ns > 1


def _provenance(runs: Sequence[Any]) -> Provenance:
    valid = [run for run in runs if _is_valid(run)]
    default = next((i for i, run in enumerate(valid) if run.is_default), None)
    failed = [(str(i), "error") for i, run in enumerate(runs) if not _is_valid(run)]
    return replace(TPU_GRAPHS, default=default, errors=tuple(failed))


def _times(arrays: Mapping[str, NDArray[Any]], key: str) -> NDArray[np.int64] | None:
    """Nanoseconds by configuration [c]; `None` if the file has none, or only zeros."""
    times = arrays.get(key)
    if times is None or not times.any():
        return None
    return times.astype(np.int64)


def _read_provenance(path: Path) -> Provenance:
    if not path.exists():
        return TPU_GRAPHS
    return PROVENANCE.read(Provenance, path.read_bytes())
