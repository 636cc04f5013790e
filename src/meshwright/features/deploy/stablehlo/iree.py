"""The targets `iree-cpu` and `iree-vulkan`: a compiled module and its weights."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.errors import CompilerError
from meshwright.features.deploy.source.extras import require
from meshwright.features.deploy.source.inexpressible import (
    Inexpressible,
    probe_ops,
    refuse,
)
from meshwright.features.deploy.source.model import SourceModel
from meshwright.features.deploy.stablehlo.lowering import lower_to_stablehlo
from meshwright.features.tune.iree.toolchain import compile_program
from meshwright.program.ir import Program, Value

MODEL_FILE = "model.vmfb"
WEIGHTS_FILE = "weights.irpa"
SCOPE = "model"
"""The scope under which a compiled module looks for its weights in an archive."""

_TIMEOUT_S = 600.0


def write_iree(model: SourceModel, folder: Path, flags: Sequence[str]) -> None:
    """Write the compiled module and, if the model has weights, their archive.

    flags: IREE's flags for the device, such as `toolchain.HOST_CPU`.
    """
    require("iree.compiler", "iree.runtime")
    text = module_text(model)
    try:
        code = compile_program(text, flags=flags, timeout_s=_TIMEOUT_S)
    except CompilerError as error:
        ops = probe_ops(model.program, lambda alone: _try_alone(alone, flags), most=100)
        if not ops:
            raise
        hint = f"IREE's message for the whole program: {error}"
        raise refuse("IREE", ops, hint) from None
    (folder / MODEL_FILE).write_bytes(code)
    if model.weights:
        write_archive(model, folder / WEIGHTS_FILE)


def module_text(model: SourceModel) -> str:
    """MLIR text of a module whose function `main` takes the model's inputs only.

    Weights are globals of the module, which IREE's runtime loads from the archive.
    """
    inner = lower_to_stablehlo(model.program, redirect=True)
    head, _, tail = inner.partition("func.func public @main(")
    signature, body = tail.split("\n", 1)
    types = [mlir_type(value) for value in model.program.inputs]
    kept = [i for i, v in enumerate(model.program.inputs) if v not in model.weights]
    results = ", ".join(mlir_type_of(port.shape, port.dtype) for port in model.outputs)
    lines = [head.rstrip()]
    loads: list[str] = []
    for i, value in enumerate(model.program.inputs):
        if value in model.weights:
            key = model.names[value]
            lines.append(
                f"  util.global private @weight_{i} = "
                f'#stream.parameter.named<"{SCOPE}"::"{key}"> : {types[i]}'
            )
            loads.append(f"    %a{i} = util.global.load @weight_{i} : {types[i]}")
    given = ", ".join(f"%a{i}: {types[i]}" for i in kept)
    every = ", ".join(f"%a{i}" for i in range(len(types)))
    count = len(model.outputs)
    made = f"%r:{count} = " if count else ""
    returned = ", ".join(f"%r#{i}" for i in range(count))
    lines += [
        f"  func.func public @main({given}) -> ({results}) {{",
        *loads,
        f"    {made}call @inner({every}) : ({', '.join(types)}) -> ({results})",
        f"    return {returned} : {results}" if count else "    return",
        "  }",
        f"  func.func private @inner({signature}",
        body,
    ]
    return "\n".join(lines)


_TYPES = {
    "bool": "i1", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "complex<f32>", "complex128": "complex<f64>",
}  # fmt: skip


def mlir_type(value: Value) -> str:
    """The MLIR tensor type of an input; a random key is an array of its words."""
    if value.dtype.startswith("key<"):
        words = 4 if "rbg" in value.dtype else 2
        return mlir_type_of((*value.shape, words), "uint32")
    return mlir_type_of(value.shape, value.dtype)


def mlir_type_of(shape: Sequence[int], dtype: str) -> str:
    """The MLIR tensor type of a shape and a dtype, such as `tensor<2x3xf32>`."""
    short = _TYPES.get(dtype) or dtype.replace("uint", "ui").replace("int", "i")
    return f"tensor<{''.join(f'{n}x' for n in shape)}{short}>"


def write_archive(model: SourceModel, path: Path) -> None:
    """Write the weights as an archive in IREE's format (.irpa)."""
    runtime: Any = import_module("iree.runtime")
    index = runtime.ParameterIndex()
    for value, array in model.weights.items():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        index.add_buffer(model.names[value], data.tobytes())
    index.create_archive_file(str(path))


def _try_alone(program: Program, flags: Sequence[str]) -> None:
    try:
        compile_program(
            lower_to_stablehlo(program, redirect=True), flags=flags, timeout_s=60.0
        )
    except CompilerError as error:
        raise Inexpressible(str(error)) from None
