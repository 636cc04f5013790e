"""The targets `iree-cpu` and `iree-vulkan`: a compiled module and its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.errors import CompilerError
from meshwright.features.deploy.legal.passes import IREE, legalize
from meshwright.features.deploy.legal.rewrite import Rules
from meshwright.features.deploy.source.extras import require
from meshwright.features.deploy.source.inexpressible import (
    Inexpressible,
    refusal_by_iree,
    refuse,
)
from meshwright.features.deploy.source.model import SourceModel
from meshwright.features.deploy.stablehlo.lowering import lower_to_stablehlo
from meshwright.features.tune.iree.toolchain import compile_program
from meshwright.program.ir import Program

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
    model = legal_model(model, IREE, "IREE")
    text = module_text(model)
    try:
        code = compile_program(text, flags=flags, timeout_s=_TIMEOUT_S)
    except CompilerError as error:

        def try_alone(alone: Program) -> None:
            op = str(lower_to_stablehlo(alone, redirect=True))
            compile_program(op, flags=flags, timeout_s=60.0)

        raise refusal_by_iree("IREE", model.program, error, try_alone) from None
    (folder / MODEL_FILE).write_bytes(code)
    if model.weights:
        write_archive(model, folder / WEIGHTS_FILE)


def legal_model(model: SourceModel, rules: Sequence[Rules], target: str) -> SourceModel:
    """The model with a legalized program; weights stay among its inputs."""
    try:
        return replace(model, program=legalize(model.program, rules))
    except Inexpressible as failure:
        ops = [] if failure.op is None else [(failure.op, str(failure))]
        raise refuse(target, ops) from None


def module_text(model: SourceModel) -> str:
    """MLIR text of a module whose function `main` takes the model's inputs only.

    Weights are globals of the module, which IREE's runtime loads from the archive. IREE
    has no globals of unsigned integers: their bits are globals of signless ones.
    """
    module = lower_to_stablehlo(model.program, redirect=True)
    (inner,) = (op for op in module.body.operations if op.name.value == "main")
    types = [str(each) for each in inner.type.inputs]
    results = ", ".join(map(str, inner.type.results))
    head, _, tail = str(module).partition("func.func public @main(")
    signature, body = tail.split("\n", 1)
    kept = [i for i, v in enumerate(model.program.inputs) if v not in model.weights]
    lines = [head.rstrip()]
    loads: list[str] = []
    for i, value in enumerate(model.program.inputs):
        if value in model.weights:
            held = types[i].replace("xui", "xi").replace("<ui", "<i")
            lines.append(
                f"  util.global private @weight_{i} = "
                f'#stream.parameter.named<"{SCOPE}"::"{model.names[value]}"> : {held}'
            )
            name = f"%a{i}" if held == types[i] else f"%w{i}"
            loads.append(f"    {name} = util.global.load @weight_{i} : {held}")
            if held != types[i]:
                cast = f"stablehlo.bitcast_convert %w{i} : ({held}) -> {types[i]}"
                loads.append(f"    %a{i} = {cast}")
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


def write_archive(model: SourceModel, path: Path) -> None:
    """Write the weights as an archive in IREE's format (.irpa)."""
    runtime: Any = import_module("iree.runtime")
    index = runtime.ParameterIndex()
    for value, array in model.weights.items():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        index.add_buffer(model.names[value], data.tobytes())
    index.create_archive_file(str(path))
