"""The target `litert`: a loop-free program as a flatbuffer, by `litert-converter`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from meshwright.features.deploy.legal.passes import LITERT, legalize
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.extras import require
from meshwright.features.deploy.source.inexpressible import Inexpressible, refusal
from meshwright.features.deploy.source.int8 import calibration_of, quantize_litert
from meshwright.features.deploy.source.model import SourceModel, require_plain_dtypes
from meshwright.features.deploy.source.unroll_loops import unroll_loops
from meshwright.features.deploy.stablehlo.dilated_inputs import pad_dilated_inputs
from meshwright.features.deploy.stablehlo.infinities import restore_infinities
from meshwright.features.deploy.stablehlo.lowering import lower_to_stablehlo
from meshwright.features.deploy.stablehlo.scatter_regions import restore_scatter_regions
from meshwright.program.ir import Program

MODEL_FILE = "model.tflite"
SIGNATURE = "serving_default"


def write_litert(model: SourceModel, folder: Path, options: DeployOptions) -> None:
    """Write the model's flatbuffer; `DeployError` names ops that LiteRT lacks."""
    require("litert_converter", "ai_edge_litert")
    if options.quantize:
        require("ai_edge_quantizer")
    require_plain_dtypes(model, "LiteRT")
    program = unroll_loops(model.baked(), "LiteRT")
    names = [port.name for port in model.inputs], [p.name for p in model.outputs]
    try:
        program = pad_dilated_inputs(legalize(program, LITERT))
        found = convert(program, *names)
    except Inexpressible as reason:
        raise refusal("LiteRT", program, reason, _try_alone) from None
    if options.quantize:
        found = quantize_litert(found, SIGNATURE, calibration_of(model, options))
    (folder / MODEL_FILE).write_bytes(found)


def convert(
    program: Program, input_names: Sequence[str], output_names: Sequence[str]
) -> bytes:
    """The flatbuffer of a program, which LiteRT's interpreter has accepted."""
    text = str(lower_to_stablehlo(program))
    # The converter has no public interface: its packages for PyTorch use these modules.
    api: Any = import_module("litert_converter.converter_api_ext")
    ir: Any = import_module("litert_converter.mlir.ir")
    passes: Any = import_module("litert_converter.mlir.passmanager")
    context = ir.Context()
    api.prepare_mlir_context(context)
    with context, ir.Location.unknown():
        try:
            module = ir.Module.parse(text)
            (main,) = (
                op.operation
                for op in module.body.operations
                if op.operation.attributes["sym_name"].value == "main"
            )
            api.set_signature(main, SIGNATURE, list(input_names), list(output_names))
            merged = api.merge_modules([module])
            config = api.ConvertToTFLConfig()
            api.run_convert_to_tfl_passes(merged, passes.PassManager(), config)
            found = api.export_flatbuffer_to_bytes(merged.operation)
        except (ValueError, RuntimeError, ir.MLIRError) as error:
            raise Inexpressible(
                _first_line(error, "the converter refuses it")
            ) from None
    found = restore_infinities(restore_scatter_regions(found), program)
    _require_kernels(found)
    return found


def _require_kernels(flatbuffer: bytes) -> None:
    """Raise `Inexpressible` if LiteRT's interpreter lacks a kernel for an op."""
    runtime: Any = import_module("ai_edge_litert.interpreter")
    try:
        runtime.Interpreter(model_content=flatbuffer).allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise Inexpressible(_first_line(error, "no kernel computes it")) from None


def _try_alone(program: Program) -> None:
    outputs = [f"out.{i}" for i in range(len(program.outputs))]
    convert(program, [f"in.{i}" for i in range(len(program.inputs))], outputs)


def _first_line(error: Exception, otherwise: str) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].rstrip(":") if lines else ""
    return otherwise if text in ("", "Failed to export flatbuffer") else text[:200]
