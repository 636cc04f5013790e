"""Ahead-of-time compilation of a device program by the compiler of another machine.

Compilers come as packages (`pip install meshwright[tpu]`, `meshwright[gpu]`) and need no
device: they compile for a topology that is named or described. They run in a process of
their own, since they read their options at start, and since the process is stopped once
buffers are assigned, long before code is generated.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax import export
from jax.sharding import AbstractMesh, AxisType

from meshwright.errors import CompilerError
from meshwright.machine import Machine, Mesh
from meshwright.partitioner.lower import Lowered
from meshwright.run.compilers.backend import Backend, Compiled, Ended
from meshwright.run.compilers.gpu import GPU
from meshwright.run.compilers.tpu import TPU
from meshwright.run.local.attention import CUSTOM_CALLS
from meshwright.run.local.spmd import named_shardings, spmd_function

BACKENDS = {"tpu": TPU, "gpu": GPU}
"""Ahead-of-time compilers, by the compiler's name in a machine's description."""

_CHILD = "meshwright.run.compilers.compile_child"
_POLL_S = 0.1
_SETTLE_S = 0.3
"""Seconds after which the newest file in XLA's dump counts as completely written."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceStep:
    """A device program with its flat global arguments, of which some are donated."""

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
    """Compile a device program for a machine, whose devices need not be present.

    full: generate code as well, which takes a minute or more and reports cycles; the GPU
        compiler reports none and is always stopped early.
    folder: an empty or new folder that keeps the compiler's files.
    Raises `CompilerError` if the compiler is not installed, fails or exceeds `timeout_s`.
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
        full = full and backend.estimates_cycles
        ended = _run(folder, request, backend, full, timeout_s)
        return backend.read(ended, machine)


def find_backend(machine: Machine) -> Backend:
    """The ahead-of-time compiler for a machine.

    Raises `CompilerError` if no compiler exists for the machine, or it is not installed.
    """
    backend = BACKENDS.get(machine.compiler)
    if backend is None:
        raise CompilerError(
            f"there is no ahead-of-time compiler for {machine.name}; it is a "
            f"{machine.compiler} machine; give a TPU or a GPU, such as tpu-v5e or h100"
        )
    name = machine.compiler
    for module in backend.modules:
        require_module(module, f"the {name.upper()} compiler", name)
    return backend


def require_module(module: str, what: str, extra: str) -> None:
    """Raise `CompilerError` if a module is missing, with the extra that installs it."""
    if not _is_installed(module):
        raise CompilerError(f"{what} needs {module}: pip install 'meshwright[{extra}]'")


def _is_installed(module: str) -> bool:
    """Whether Python finds a module; its parent packages are imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _write_request(
    folder: Path, step: DeviceStep, machine: Machine, backend: Backend
) -> Path:
    exported = folder / "step.bin"
    exported.write_bytes(export_step(step, backend.platform))
    sizes = dict(step.lowered.mesh.sizes)
    topology, options = backend.target(machine)
    request = {
        "step": str(exported),
        "hlo": str(folder / "compiled.hlo"),
        "result": str(folder / "result.json"),
        "platform": backend.platform,
        "topology": topology,
        "topology_options": options,
        "mesh_shape": list(sizes.values()),
        "axes": list(sizes),
        "donated": list(step.donated),
    }
    path = folder / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    return path


def export_step(step: DeviceStep, platform: str) -> bytes:
    """The serialised `jax.export` of a device program, for any mesh of its shape."""
    lowered = step.lowered
    mesh = abstract_mesh(lowered.mesh)
    jitted = jax.jit(
        spmd_function(lowered, mesh),
        in_shardings=named_shardings(mesh, lowered.inputs),
        out_shardings=named_shardings(mesh, lowered.outputs),
        donate_argnums=step.donated,
    )
    return export_jitted(jitted, step.avals, platform)


def abstract_mesh(mesh: Mesh) -> AbstractMesh:
    """A JAX mesh without devices, with the axes and sizes of `mesh`."""
    names, sizes = zip(*mesh.sizes, strict=True)
    return AbstractMesh(sizes, names, axis_types=(AxisType.Auto,) * len(sizes))


def export_jitted(jitted: Any, avals: Sequence[Any], platform: str) -> bytes:
    """The serialised `jax.export` of a jitted function.

    It is compiled by the release of JAX that exported it, so that it needs no promise of
    compatibility.
    """
    targets = ("LayoutConstraint", *CUSTOM_CALLS)
    allowed = [export.DisabledSafetyCheck.custom_call(target) for target in targets]
    made = export.export(jitted, platforms=[platform], disabled_checks=allowed)(*avals)
    return bytes(made.serialize())


# -- the child -------------------------------------------------------------------------


def _run(
    folder: Path, request: Path, backend: Backend, full: bool, timeout_s: float
) -> Ended:
    dump, log = folder / "dump", folder / "log"
    dump.mkdir()
    start_s = time.perf_counter()
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(
            [sys.executable, "-P", "-m", _CHILD, str(request)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(dump, backend),
        ) as child,
    ):
        try:
            while child.poll() is None:
                if time.perf_counter() - start_s > timeout_s:
                    raise CompilerError(f"the compiler took longer than {timeout_s} s")
                wanted = backend.program, backend.report
                if not full and all(any(dump.glob(each)) for each in wanted):
                    time.sleep(_SETTLE_S)
                    break
                time.sleep(_POLL_S)
        finally:
            child.kill()
    elapsed_s = time.perf_counter() - start_s
    printed = log.read_text(encoding="utf-8", errors="replace")
    return Ended(backend, folder, printed, elapsed_s, full)


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
