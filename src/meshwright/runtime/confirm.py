"""Asks the real compiler of another machine what it makes of a device program.

The TPU compiler comes as a package (`pip install meshwright[tpu]`) and needs no TPU: it
compiles for a topology that is only named. It runs in a process of its own, since it
reads its options when it starts, and since the fast way is to end it once memory is
assigned, long before code is generated.
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
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax import export
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from meshwright.errors import CompilerError
from meshwright.jax_private import hlo_flops
from meshwright.lower import Lowered
from meshwright.machine import Machine
from meshwright.runtime.execute import run_program
from meshwright.runtime.hlo import (
    Transfer,
    estimated_cycles,
    scheduler_report,
    transfers,
)
from meshwright.runtime.spmd import partition_spec

_POLL_S = 0.1
_SETTLE_S = 0.3
"""The dump's last file may still be growing when it is first seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A device program with its flat global arguments, some of them given up."""

    lowered: Lowered
    avals: tuple[jax.ShapeDtypeStruct, ...]
    donated: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compiler says of a step, per device.

    peak_bytes: arguments, results and all that is alive beside them at once.
    fits: false where the compiler refused for want of memory; peak_bytes is then what
        it says it needs.
    hlo: the scheduled program, optimised.
    flops: as XLA counts them in that program; a loop's body counts once.
    transfers: its collectives, with what its scheduler believes that they take.
    cycles: the sum of what it estimates for each fusion, loops multiplied; None where
        it was stopped early.
    memory: what the runtime would be told, by name; None where it was stopped early.
    """

    peak_bytes: int
    fits: bool
    compile_s: float
    hlo: str
    flops: float | None = None
    transfers: tuple[Transfer, ...] = ()
    cycles: float | None = None
    memory: Mapping[str, int] | None = None


def confirm(
    step: Step,
    machine: Machine,
    full: bool = False,
    timeout_s: float = 600.0,
    folder: Path | None = None,
) -> Compiled:
    """Compile a device program for a machine that need not be here.

    full: generate code as well, which takes a minute or more, and tells cycles.
    folder: an empty one in which the compiler's own files stay; none stay if None.
    Raises `CompilerError` where the compiler is not installed, fails or takes longer.
    """
    _require_compiler(machine)
    with ExitStack() as stack:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="meshwright-")
            folder = Path(stack.enter_context(made))
        request = _write_request(folder, step, machine)
        return _run(folder, request, machine, full, timeout_s)


def _require_compiler(machine: Machine) -> None:
    if machine.compiler != "tpu" or not machine.topology:
        raise CompilerError(
            f"there is no ahead-of-time compiler for {machine.name}; it is a "
            f"{machine.compiler} machine"
        )
    for module in ("libtpu", "flatbuffers"):
        if importlib.util.find_spec(module) is None:
            raise CompilerError(
                f"the TPU compiler needs {module}: pip install 'meshwright[tpu]'"
            )


def _write_request(place: Path, step: Step, machine: Machine) -> Path:
    exported = place / "step.bin"
    exported.write_bytes(export_step(step))
    sizes = dict(step.lowered.mesh.sizes)
    chips = machine.grid[-_ici_rank(machine) :]
    shape = "x".join(str(dim.extent) for dim in chips)
    slices = machine.num_devices
    for dim in chips:
        slices //= dim.extent
    options: dict[str, object] = {"num_slices": slices} if slices > 1 else {}
    if machine.chip_config:
        options["chip_config_name"] = machine.chip_config
    request = {
        "step": str(exported),
        "hlo": str(place / "compiled.hlo"),
        "result": str(place / "result.json"),
        "platform": machine.compiler,
        "topology": f"{machine.topology}:{shape}",
        "topology_options": options,
        "mesh_shape": list(sizes.values()),
        "axes": list(sizes),
        "donated": list(step.donated),
    }
    path = place / "request.json"
    path.write_text(json.dumps(request), encoding="utf-8")
    return path


def _ici_rank(machine: Machine) -> int:
    return len(machine.levels[0].extents)


def export_step(step: Step) -> bytes:
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
    made = export.export(jitted, platforms=["tpu"])(*step.avals)
    return bytes(made.serialize())


# -- the child -------------------------------------------------------------------------


def _run(
    place: Path, request: Path, machine: Machine, full: bool, timeout_s: float
) -> Compiled:
    dump, log = place / "dump", place / "log"
    dump.mkdir()
    start_s = time.perf_counter()
    with log.open("w", encoding="utf-8") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "meshwright.runtime.compile_child", str(request)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(dump),
        )
        try:
            while child.poll() is None:
                if time.perf_counter() - start_s > timeout_s:
                    raise CompilerError(f"the compiler took longer than {timeout_s} s")
                if not full and _has_memory(dump):
                    time.sleep(_SETTLE_S)
                    break
                time.sleep(_POLL_S)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
    elapsed_s = time.perf_counter() - start_s
    told = log.read_text(encoding="utf-8", errors="replace")
    return _read(place, told, machine, full, elapsed_s)


def _environment(dump: Path) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={dump}"
    flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", flags)
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_STDERR_LOG_LEVEL": "0",
        "TPU_MIN_LOG_LEVEL": "0",
        "TPU_VMODULE": "latency_hiding_scheduler=5",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "XLA_FLAGS": flags.strip(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }


_FINAL = "*after_optimizations_after_buffer_assignment.txt"
_REPORT = "*after_optimizations-memory-usage-report.txt"


def _has_memory(dump: Path) -> bool:
    return any(dump.glob(_FINAL)) and any(dump.glob(_REPORT))


_NEEDS = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm")
_TOTAL = re.compile(r"\(color=0\)\s*Total bytes: (\d+)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _read(
    place: Path, log: str, machine: Machine, full: bool, elapsed_s: float
) -> Compiled:
    """The child's result, or what lies in the dump; `CompilerError` if neither.

    A small program may be done before the child is stopped: unless all was asked for,
    the dump speaks all the same.
    """
    result = place / "result.json"
    if full and result.exists():
        memory = json.loads(result.read_text(encoding="utf-8"))
        hlo = (place / "compiled.hlo").read_text(encoding="utf-8")
        return Compiled(
            memory.pop("peak_bytes"),
            True,
            memory.pop("compile_s"),
            hlo,
            memory.pop("flops"),
            _transfers(log, hlo, machine),
            estimated_cycles(hlo),
            memory,
        )
    refused = _NEEDS.search(log)
    if refused:
        needed = float(refused[1]) * _UNITS[refused[2]]
        return Compiled(int(needed), False, elapsed_s, "")
    reports = sorted((place / "dump").glob(_REPORT), key=lambda p: p.stat().st_size)
    finals = sorted((place / "dump").glob(_FINAL), key=lambda p: p.stat().st_size)
    total = _TOTAL.search(reports[-1].read_text("utf-8")) if reports else None
    if not finals or total is None:
        raise CompilerError(f"the compiler failed:\n{log[-2000:]}")
    hlo = finals[-1].read_text(encoding="utf-8")
    return Compiled(
        int(total[1]),
        True,
        elapsed_s,
        hlo,
        hlo_flops(hlo),
        _transfers(log, hlo, machine),
    )


def _transfers(log: str, hlo: str, machine: Machine) -> tuple[Transfer, ...]:
    program, cycles = scheduler_report(log)
    return tuple(transfers(program, hlo, cycles, machine.chip.clock_hz or 1.0))
