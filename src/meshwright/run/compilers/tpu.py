"""The TPU compiler `libtpu`, which can compile for every TPU by its name."""

import re
from dataclasses import replace

from meshwright.errors import CompilerError
from meshwright.jax_private import hlo_flops
from meshwright.machine import Machine
from meshwright.run.compilers.backend import Backend, Compiled, Ended, Target
from meshwright.run.compilers.hlo import (
    HloCollective,
    estimated_cycles,
    hlo_collectives,
    scheduler_report,
)

_ASSIGNED = "*after_optimizations-buffer-assignment.txt"

_ALLOCATION = re.compile(r"^allocation \d+: size (\d+),(.*)$", re.MULTILINE)

_NEEDS = re.compile(r"Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _target(machine: Machine) -> Target:
    """A topology such as `v5e:2x4`, with several slices if a network connects them."""
    if not machine.topology:
        raise CompilerError(
            f"the description of {machine.name} lacks topology, which is what the TPU "
            'compiler calls the chip, such as "v5e"'
        )
    chips = machine.grid[-len(machine.levels[0].extents) :]
    slices = machine.num_devices
    for dim in chips:
        slices //= dim.extent
    options: dict[str, object] = {"num_slices": slices} if slices > 1 else {}
    if machine.chip_config:
        options["chip_config_name"] = machine.chip_config
    shape = "x".join(str(dim.extent) for dim in chips)
    return f"{machine.topology}:{shape}", options


def _read(ended: Ended, machine: Machine) -> Compiled:
    """The report on a step, from the finished compilation or from the compiler's dump.

    The dump is used if the compilation was not meant to finish. A small program may be
    finished before its process is stopped; its report then comes from the dump as well.
    """
    found = ended.result() if ended.full else None
    if found is not None:
        return replace(
            found,
            collectives=_collectives(ended.log, found.hlo, machine),
            cycles=estimated_cycles(found.hlo),
        )
    out_of_memory = _NEEDS.search(ended.log)
    if out_of_memory:
        needed = float(out_of_memory[1]) * _UNITS[out_of_memory[2]]
        return Compiled(int(needed), False, ended.elapsed_s, "")
    hlo, num_bytes = ended.memory()
    assignment = ended.dumped(_ASSIGNED)
    if assignment is not None:
        num_bytes = min(num_bytes, assigned_bytes(assignment))
    return Compiled(
        num_bytes,
        True,
        ended.elapsed_s,
        hlo,
        hlo_flops(hlo),
        _collectives(ended.log, hlo, machine),
    )


def assigned_bytes(assignment: str) -> int:
    """Bytes of main memory in a buffer assignment, without thread-local allocations.

    Since libtpu 0.0.52 the memory report also counts arguments and results of called
    computations, such as gathers on another core, though they share the caller's memory.
    """
    found = _ALLOCATION.findall(assignment)
    return sum(
        int(size)
        for size, rest in found
        if "color" not in rest and "thread-local" not in rest
    )


def _collectives(log: str, hlo: str, machine: Machine) -> tuple[HloCollective, ...]:
    program, cycles = scheduler_report(log)
    return tuple(hlo_collectives(program, hlo, cycles, machine.chip.clock_hz or 1.0))


TPU = Backend(
    platform="tpu",
    modules=("libtpu", "flatbuffers"),
    target=_target,
    environment={
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_STDERR_LOG_LEVEL": "0",
        "TPU_MIN_LOG_LEVEL": "0",
        "TPU_VMODULE": "latency_hiding_scheduler=5",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    },
    program="*after_optimizations_after_buffer_assignment.txt",
    report="*after_optimizations-memory-usage-report.txt",
    estimates_cycles=True,
    read=_read,
)
