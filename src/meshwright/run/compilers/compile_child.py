"""Compiles one exported step ahead of time, in a process of its own.

`meshwright.run.compilers.confirm` starts it with the path of a request in JSON, which
says where to write the result. The process may be killed as soon as XLA's dump contains
what the request needs.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export
from jax.experimental import mesh_utils, topologies
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh


def compile_step(request: dict[str, Any]) -> dict[str, Any]:
    """Compile a step to the end; returns the compiler's memory and cost figures."""
    return figures(request, *compile_request(request))


def compile_request(request: dict[str, Any], last: str = "") -> tuple[Any, float]:
    """The compiled step of a request, and the seconds that the compiler took.

    last: name of a custom call that is added as one more result, if any.
    """
    exported = export.deserialize(bytearray(Path(request["step"]).read_bytes()))
    mesh = _mesh(request)
    inputs, outputs = (
        tuple(map(format_of, layouts or [None] * len(shardings), shardings))
        for layouts, shardings in (
            (request.get("in_layouts"), exported.in_shardings_jax(mesh)),
            (request.get("out_layouts"), exported.out_shardings_jax(mesh)),
        )
    )

    def call(*leaves: Any) -> tuple[Any, ...]:
        results = tuple(exported.call(*leaves))
        if not last:
            return results
        aval = jax.ShapeDtypeStruct((8, 128), jnp.float32)
        return *results, jax.ffi.ffi_call(last, aval)()

    jitted = jax.jit(
        call,
        donate_argnums=tuple(request["donated"]),
        in_shardings=inputs,
        out_shardings=(*outputs, None) if last else outputs,
    )
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.in_avals]
    lowered = jitted.lower(*avals)
    start_s = time.perf_counter()
    return lowered.compile(), time.perf_counter() - start_s


def _mesh(request: dict[str, Any]) -> Mesh:
    """The mesh of a request, over devices of its topology or, on CPU, of this process."""
    shape = tuple(request["mesh_shape"])
    if request["platform"] == "cpu":
        devices: Any = jax.devices("cpu")
    else:
        options = request["topology_options"]
        devices = topologies.get_topology_desc(
            request["topology"], platform=request["platform"], **options
        ).devices
    grid = mesh_utils.create_device_mesh(
        shape, devices[: math.prod(shape)], allow_split_physical_axes=True
    )
    return Mesh(grid, request["axes"])


def format_of(layout: Any, sharding: Any) -> Any:
    """The format of an argument or result with the layout that a request asks for.

    layout: dims major to minor, "auto" if the compiler chooses, `None` for the default.
    """
    if layout is None:
        return sharding
    chosen = Layout.AUTO if layout == "auto" else Layout(tuple(layout))
    return Format(chosen, sharding)


def figures(request: dict[str, Any], compiled: Any, compile_s: float) -> dict[str, Any]:
    """Figures of a compiled step; its program is written where the request says."""
    memory: Any = compiled.memory_analysis()
    costs = compiled.cost_analysis() or {}
    Path(request["hlo"]).write_text(compiled.as_text() or "", encoding="utf-8")
    return {
        "argument_bytes": memory.argument_size_in_bytes,
        "output_bytes": memory.output_size_in_bytes,
        "alias_bytes": memory.alias_size_in_bytes,
        "temp_bytes": memory.temp_size_in_bytes,
        "peak_bytes": memory.peak_memory_in_bytes,
        "flops": costs.get("flops"),
        "compile_s": compile_s,
    }


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    result = json.dumps(compile_step(given))
    Path(given["result"]).write_text(result, encoding="utf-8")
