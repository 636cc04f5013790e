"""XLA's compiler for CUDA, which is given the numbers of a GPU instead of its name."""

import re

from meshwright.errors import CompilerError
from meshwright.jax_private import hlo_flops
from meshwright.machine import Machine
from meshwright.run.compilers.backend import Backend, Compiled, Ended, Target
from meshwright.run.compilers.hlo import hlo_collectives

_PARTITIONED = "*after_spmd_partitioner.txt"

_CONFIG = """\
gpu_device_info {{
  cuda_compute_capability {{
    major: {major} minor: {minor} feature_extension: {extension}
  }}
  core_count: {chip.num_cores}
  fpus_per_core: {gpu.lanes}
  shared_memory_per_core: {gpu.shared_bytes}
  shared_memory_per_block_optin: {gpu.block_shared_bytes}
  clock_rate_ghz: {clock_ghz}
  memory_bandwidth: {chip.hbm_bytes_per_s:.0f}
  device_memory_size: {chip.hbm_bytes:.0f}
  l2_cache_size: {chip.on_chip_bytes:.0f}
  shared_memory_per_block: 49152
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  runtime_version: "12.8.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{title}"
"""
"""A `GpuTargetConfigProto`. The literal numbers are equal for every GPU from compute
capability 7.0 to 10.0 (OpenXLA, xla/backends/gpu/target_config/specs), as are the
releases of CUDA and cuDNN there."""

_ACCELERATED = 9
"""First major compute capability whose code is specific to one chip, as in "9.0a"."""


def target_config(machine: Machine) -> str:
    """The `GpuTargetConfigProto` of one device of a machine, as text.

    Raises `CompilerError` for a machine without `[gpu]` or a clock.
    """
    gpu, clock_hz = machine.gpu, machine.chip.clock_hz
    if gpu is None or clock_hz is None:
        raise CompilerError(
            f"the description of {machine.name} lacks a table [gpu] or chip.clock_hz, "
            f"which the GPU compiler needs; the presets show the format"
        )
    major, minor = gpu.capability
    accelerated = major >= _ACCELERATED
    return _CONFIG.format(
        gpu=gpu,
        chip=machine.chip,
        major=major,
        minor=minor,
        extension="ACCELERATED_FEATURES" if accelerated else "NONE",
        clock_ghz=clock_hz / 1e9,
        title=machine.title,
    )


def _target(machine: Machine) -> Target:
    """The topology to compile for: a machine's name and shape, with a process per node.

    A node has the devices that the machine's innermost level connects.
    """
    node = min(machine.num_devices, machine.levels[0].largest)
    options = {
        "target_config": target_config(machine),
        "topology": f"1x{machine.num_devices // node}x{node}",
    }
    return machine.name, options


_LIBRARY = re.compile(r'custom_call_target="__cu(?:blas|dnn)')
"""Calls of libraries for products, whose operations XLA does not count."""


def _read(ended: Ended, machine: Machine) -> Compiled:
    """The report on a step, read from the compiler's dump before it generates code.

    So `ptxas`, which generates code, need not be installed. The compiler applies no memory
    limit, so that the machine's `usable_bytes` decide whether a step fits.
    """
    hlo, num_bytes = ended.memory()
    return Compiled(
        num_bytes,
        num_bytes <= machine.chip.usable_bytes,
        ended.elapsed_s,
        hlo,
        _flops(ended, hlo),
        tuple(hlo_collectives(hlo, hlo, {}, 1.0)),
    )


def _flops(ended: Ended, hlo: str) -> float | None:
    """Floating-point operations of a program; `None` if they cannot be counted.

    They are counted before products become calls of a library.
    """
    if not _LIBRARY.search(hlo):
        return hlo_flops(hlo)
    partitioned = ended.dumped(_PARTITIONED)
    return None if partitioned is None else hlo_flops(partitioned)


GPU = Backend(
    platform="cuda",
    modules=("jax_cuda13_plugin", "jax_plugins.xla_cuda13", "flatbuffers"),
    target=_target,
    environment={},
    program="*gpu_after_optimizations.txt",
    report="*gpu_after_optimizations-memory-usage-report.txt",
    estimates_cycles=False,
    read=_read,
)
