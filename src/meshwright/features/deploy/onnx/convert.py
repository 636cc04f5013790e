"""The target `onnx`: the ONNX model of a program."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import meshwright.features.deploy.onnx.contraction
import meshwright.features.deploy.onnx.elementwise
import meshwright.features.deploy.onnx.fused
import meshwright.features.deploy.onnx.indexing
import meshwright.features.deploy.onnx.movement
import meshwright.features.deploy.onnx.reduction
import meshwright.features.deploy.onnx.regions  # noqa: F401  fills the registry
from meshwright.errors import DeployError
from meshwright.features.deploy.legal.folding import fold_constants
from meshwright.features.deploy.legal.passes import ONNX, legalize
from meshwright.features.deploy.onnx.convert_ops import inline
from meshwright.features.deploy.onnx.converters import CONVERTERS
from meshwright.features.deploy.onnx.fusions import combine_ops, fuse_ops
from meshwright.features.deploy.onnx.graph import (
    OPSET,
    OnnxGraph,
    names_of,
    value_info,
)
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.extras import require
from meshwright.features.deploy.source.inexpressible import (
    Inexpressible,
    refusal,
    refuse,
)
from meshwright.features.deploy.source.int8 import calibration_of, quantize_onnx
from meshwright.features.deploy.source.model import SourceModel, require_plain_dtypes
from meshwright.features.deploy.source.unroll_loops import unroll_loops
from meshwright.program.ir import Program

MODEL_FILE = "model.onnx"
_IR_VERSION = 10
_LARGEST_BYTES = 2 * 10**9
"""Most bytes of weights in a model; protocol buffers hold at most 2 GiB."""


def write_onnx(model: SourceModel, folder: Path, options: DeployOptions) -> None:
    """Write the ONNX model into a folder; `DeployError` names ops that ONNX lacks.

    For int8, loops are unrolled, since ONNX Runtime does not quantize products in loop
    bodies.
    """
    require("onnx", "onnxruntime")
    if model.weight_bytes > _LARGEST_BYTES:
        raise DeployError(
            f"the weights have {model.weight_bytes} bytes, and a file of ONNX holds at "
            f"most {_LARGEST_BYTES}: use iree-cpu"
        )
    require_plain_dtypes(model, "ONNX")
    program = model.baked()
    names = [port.name for port in model.inputs], [port.name for port in model.outputs]
    try:
        program = legalize(fuse_ops(fold_constants(program)), ONNX)
        program = combine_ops(program)
        require_known(program)
        if options.quantize:
            program = unroll_loops(program, "int8 for ONNX")
        found = convert(program, model.name, *names)
        _require_kernels(found)
    except Inexpressible as failure:
        raise refusal("ONNX", program, failure, _try_alone) from None
    if options.quantize:
        found = quantize_onnx(found, calibration_of(model, options))
    (folder / MODEL_FILE).write_bytes(found)


def _require_kernels(content: bytes) -> None:
    """Raise `Inexpressible` if ONNX Runtime has no kernel for an op and its dtypes."""
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  its classes have no common base
        raise Inexpressible(str(error).split(":")[-1].strip()[:200]) from None


def _try_alone(program: Program) -> None:
    names = [f"in.{i}" for i in range(len(program.inputs))]
    outputs = [f"out.{i}" for i in range(len(program.outputs))]
    _require_kernels(convert(program, "op", names, outputs))


def require_known(program: Program) -> None:
    """Raise `DeployError` with the source lines of ops that have no converter."""
    missing = [op for op in program.walk() if op.kind not in CONVERTERS]
    if missing:
        raise refuse("ONNX", [(op, "ONNX has no such op") for op in missing])


def convert(
    program: Program, name: str, input_names: list[str], output_names: list[str]
) -> bytes:
    """The ONNX model of a program, as the content of a file."""
    onnx: Any = import_module("onnx")
    graph = OnnxGraph()
    found = inline(graph, program, input_names)
    for own, result in zip(output_names, found, strict=True):
        make = onnx.helper.make_node
        graph.nodes.append(make("Identity", [result], [own], own))
    inputs = [
        value_info(own, value.shape, value.dtype)
        for own, value in zip(input_names, program.inputs, strict=True)
    ]
    outputs = [
        value_info(own, atom.shape, atom.dtype)
        for own, atom in zip(output_names, program.outputs, strict=True)
    ]
    graph.drop_unread(output_names)
    read = {name for node in graph.nodes for name in names_of(node)}
    constants = [
        onnx.numpy_helper.from_array(array, own)
        for own, array in graph.constants.items()
        if own in read
    ]
    made = onnx.helper.make_graph(graph.nodes, name, inputs, outputs, constants)
    model = onnx.helper.make_model(
        made,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        producer_name="meshwright",
    )
    model.ir_version = _IR_VERSION
    return model.SerializeToString()
