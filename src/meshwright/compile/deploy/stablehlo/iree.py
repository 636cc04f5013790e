"""IREE: a module compiled ahead of time, with its weights in an archive beside it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.compile.deploy.source.extras import require
from meshwright.compile.deploy.source.inexpressible import (
    Inexpressible,
    probe_ops,
    refuse,
)
from meshwright.compile.deploy.source.model import SourceModel
from meshwright.compile.deploy.stablehlo.lowering import lower_to_stablehlo
from meshwright.errors import CompilerError
from meshwright.program.ir import Program, Value
from meshwright.run.iree.toolchain import compile_program

MODEL_FILE = "model.vmfb"
WEIGHTS_FILE = "weights.irpa"
SCOPE = "model"
"""The name under which a module asks for its weights."""

_TIMEOUT_S = 600.0


def write_iree(model: SourceModel, folder: Path, flags: Sequence[str]) -> None:
    """Write the compiled module, and the archive of weights if the model has any.

    flags: IREE's for the device, as `toolchain` lists them.
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
    """MLIR of a module whose public `main` takes the model's inputs alone.

    Weights are globals that IREE's runtime fills from an archive.
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
    """The tensor type of a program's input; that of its words for typed keys."""
    if value.dtype.startswith("key<"):
        words = 4 if "rbg" in value.dtype else 2
        return mlir_type_of((*value.shape, words), "uint32")
    return mlir_type_of(value.shape, value.dtype)


def mlir_type_of(shape: Sequence[int], dtype: str) -> str:
    """The tensor type of a shape and a dtype, as StableHLO has it."""
    short = _TYPES.get(dtype) or dtype.replace("uint", "ui").replace("int", "i")
    return f"tensor<{''.join(f'{n}x' for n in shape)}{short}>"


def write_archive(model: SourceModel, path: Path) -> None:
    """Write the weights in IREE's format for parameters."""
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
