"""Asks the real compiler of another machine what it makes of a device program.

Compilers come as packages (`pip install meshwright[tpu]`, `meshwright[gpu]`) and need
no device: they compile for a topology that is only named or described. They run in a
process of their own, since they read their options when they start, and since the fast
way is to end it once memory is assigned, long before code is generated.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from meshwright.errors import CompilerError
from meshwright.machine import Machine
from meshwright.partitioner.lower import Lowered
from meshwright.run.compilers.backend import Backend, Compiled, Ended
from meshwright.run.compilers.gpu import GPU
from meshwright.run.compilers.tpu import TPU
from meshwright.run.local.execute import run_program
from meshwright.run.local.spmd import partition_spec

BACKENDS = {"tpu": TPU, "gpu": GPU}
"""By what a machine calls its compiler."""

_CHILD = "meshwright.run.compilers.compile_child"
_POLL_S = 0.1
_SETTLE_S = 0.3
"""The dump's last file may still be growing when it is first seen."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceStep:
    """A device program with its flat global arguments, some of them given up."""

    lowered: Lowered
    avals: tuple[jax.ShapeDtypeStruct, ...]
    donated: tuple[int, ...] = ()


def confirm(
    step: DeviceStep,
    machine: Machine,
    full: bool = False,
    timeout_s: float = 600.0,
    folder: Path | None = None,
) -> Compiled:
    """Compile a device program for a machine that need not be here.

    full: generate code as well, which takes a minute or more, and tells cycles; not of
        a GPU, whose compiler tells none.
    folder: an empty or new one in which the compiler's own files stay; none stay if
        None.
    Raises `CompilerError` where the compiler is not installed, fails or takes longer.
    """
    backend = find_backend(machine)
    with ExitStack() as stack:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="meshwright-")
            folder = Path(stack.enter_context(made))
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CompilerError(f"{folder} is not empty; wanted a folder of its own")
        request = _write_request(folder, step, machine, backend)
        full = full and backend.tells_time
        ended = _run(folder, request, backend, full, timeout_s)
        return backend.read(ended, machine)


def find_backend(machine: Machine) -> Backend:
    """The compiler of a machine; `CompilerError` if there is none, or not here."""
    backend = BACKENDS.get(machine.compiler)
    if backend is None:
        raise CompilerError(
            f"there is no ahead-of-time compiler for {machine.name}; it is a "
            f"{machine.compiler} machine"
        )
    name = machine.compiler
    for module in backend.modules:
        if not _is_installed(module):
            raise CompilerError(
                f"the {name.upper()} compiler needs {module}: "
                f"pip install 'meshwright[{name}]'"
            )
    return backend


def _is_installed(module: str) -> bool:
    """Whether Python would find a module; its parents are imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _write_request(
    place: Path, step: DeviceStep, machine: Machine, backend: Backend
) -> Path:
    exported = place / "step.bin"
    exported.write_bytes(export_step(step, backend.platform))
    sizes = dict(step.lowered.mesh.sizes)
    topology, options = backend.target(machine)
    request = {
        "step": str(exported),
        "hlo": str(place / "compiled.hlo"),
        "result": str(place / "result.json"),
        "platform": backend.platform,
        "topology": topology,
        "topology_options": options,
        "mesh_shape": list(sizes.values()),
        "axes": list(sizes),
        "donated": list(step.donated),
    }
    path = place / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    return path


def export_step(step: DeviceStep, platform: str) -> bytes:
    """The device program for any mesh of its shape, serialised."""
    lowered = step.lowered
    sizes = lowered.mesh.sizes
    mesh = AbstractMesh(
        tuple(size for _, size in sizes),
        tuple(name for name, _ in sizes),
        axis_types=(AxisType.Auto,) * len(sizes),
    )

    def device_step(*inputs: Any) -> tuple[Any, ...]:
        return tuple(run_program(lowered.program, inputs))

    in_specs, out_specs = (
        tuple(partition_spec(s) for s in side)
        for side in (lowered.inputs, lowered.outputs)
    )
    mapped = jax.shard_map(
        device_step, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
    jitted = jax.jit(
        mapped,
        in_shardings=tuple(NamedSharding(mesh, s) for s in in_specs),
        out_shardings=tuple(NamedSharding(mesh, s) for s in out_specs),
        donate_argnums=tuple(step.donated),
    )
    made = export.export(jitted, platforms=[platform])(*step.avals)
    return bytes(made.serialize())


# -- the child -------------------------------------------------------------------------


def _run(
    place: Path, request: Path, backend: Backend, full: bool, timeout_s: float
) -> Ended:
    dump, log = place / "dump", place / "log"
    dump.mkdir()
    start_s = time.perf_counter()
    with log.open("w", encoding="utf-8") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", _CHILD, str(request)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(dump, backend),
        )
        try:
            while child.poll() is None:
                if time.perf_counter() - start_s > timeout_s:
                    raise CompilerError(f"the compiler took longer than {timeout_s} s")
                if not full and backend.has_memory(dump):
                    time.sleep(_SETTLE_S)
                    break
                time.sleep(_POLL_S)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
    elapsed_s = time.perf_counter() - start_s
    told = log.read_text(encoding="utf-8", errors="replace")
    return Ended(place, told, elapsed_s, full)


def _environment(dump: Path, backend: Backend) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dump}"
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", flags)
    return {
        **os.environ,
        **backend.environment,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags.strip(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
