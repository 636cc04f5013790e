"""Compiles one exported step ahead of time, in a process of its own.

`meshwright.run.compilers.confirm` starts it with the path of a request in JSON, which says
where to write the result. The process may be killed once XLA's dump has what the request
is for.
"""

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import jax
from jax import export
from jax.experimental import mesh_utils, topologies
from jax.sharding import Mesh


def compile_step(request: dict[str, Any]) -> dict[str, Any]:
    """The compiler's memory and cost figures of a whole compilation."""
    exported = export.deserialize(bytearray(Path(request["step"]).read_bytes()))
    options = request["topology_options"]
    topology = topologies.get_topology_desc(
        request["topology"], platform=request["platform"], **options
    )
    shape = tuple(request["mesh_shape"])
    devices = topology.devices[: math.prod(shape)]
    grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    mesh = Mesh(grid, request["axes"])
    leaves = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
        for aval, sharding in zip(
            exported.in_avals, exported.in_shardings_jax(mesh), strict=True
        )
    ]
    jitted = jax.jit(
        exported.call,
        donate_argnums=tuple(request["donated"]),
        out_shardings=tuple(exported.out_shardings_jax(mesh)),
    )
    lowered = jitted.lower(*leaves)
    start_s = time.perf_counter()
    compiled = lowered.compile()
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
        "compile_s": time.perf_counter() - start_s,
    }


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    result = json.dumps(compile_step(given))
    Path(given["result"]).write_text(result, encoding="utf-8")
