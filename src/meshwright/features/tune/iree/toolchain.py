"""IREE's compiler as a child process, and its runtime on one thread of this process."""

from __future__ import annotations

import platform
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import CompilerError

LOCAL = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
)
"""Options of IREE's compiler for any CPU."""

HOST_CPU = (*LOCAL, "--iree-llvmcpu-target-cpu=host")
"""Options of IREE's compiler for the CPU of this machine."""

VULKAN = ("--iree-hal-target-device=vulkan",)
"""Options of IREE's compiler for any GPU with a Vulkan driver."""

_INPUT = "--iree-input-type=auto"
_ERROR = re.compile(r"error: (.*)")
_MISSING = (
    "IREE is not installed: `pip install 'meshwright[iree]'` installs its compiler and "
    "its runtime"
)

Arrays = Sequence[NDArray[Any]]


class CompilePhase(Enum):
    """Phase of IREE's compiler at which a compilation starts or ends.

    What an early phase yields is text.
    """

    INPUT = "start"
    SOURCES = "executable-sources"  # one function per dispatch, no tile sizes yet
    CONFIGURATIONS = "executable-configurations"  # with the tile sizes that IREE chose
    STREAM = (
        "stream"  # host code with resources and timepoints; no kernels are compiled
    )
    HAL = "hal"  # host code that allocates and dispatches; kernels are compiled
    CODE = "end"


def compile_program(
    text: str,
    to: CompilePhase = CompilePhase.CODE,
    *,
    since: CompilePhase = CompilePhase.INPUT,
    spec: str = "",
    flags: Sequence[str] = HOST_CPU,
    timeout_s: float = 60.0,
) -> bytes:
    """Compile a program with IREE, to code for a device or to the text of an earlier phase.

    since: the phase that `text` comes from.
    spec: text of a tuning spec, if any.
    flags: options that select the device; the default is this machine's CPU.
    Raises `CompilerError` with the compiler's first message.
    """
    phases = [f"--compile-from={since.value}", f"--compile-to={to.value}"]
    command = [_compiler(), _INPUT, *flags, *phases, "-"]
    try:
        with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
            path = Path(folder, "spec.mlir")
            path.write_text(spec, encoding="utf-8")
            if spec:
                command.insert(-1, f"--iree-codegen-tuning-spec-path={path}")
            ended = subprocess.run(
                command, input=text.encode(), capture_output=True, timeout=timeout_s
            )
    except subprocess.TimeoutExpired:
        raise CompilerError(
            f"IREE did not finish within {timeout_s:g} s: give it more time, or a smaller "
            "program"
        ) from None
    if ended.returncode:
        log = ended.stderr.decode(errors="replace")
        message = _ERROR.search(log)
        reason = message[1] if message else log[-300:] or f"status {ended.returncode}"
        raise CompilerError(f"IREE failed: {reason.strip()[:300]}")
    return ended.stdout


@cache
def _compiler() -> str:
    try:
        binaries = import_module("iree.compiler.tools.binaries")
    except ImportError as missing:
        raise CompilerError(_MISSING) from missing
    return str(binaries.find_tool("iree-compile"))


@cache
def _runtime_config() -> tuple[Any, Any]:
    """IREE's runtime module, and a device that runs in the calling thread."""
    try:
        runtime: Any = import_module("iree.runtime")
    except ImportError as missing:
        raise CompilerError(_MISSING) from missing
    return runtime, runtime.Config("local-sync")


def require_iree() -> None:
    """Raise `CompilerError` if IREE's compiler or its runtime is not installed."""
    _compiler()
    _runtime_config()


def version() -> str:
    """The version of the installed compiler."""
    require_iree()
    return metadata.version("iree-base-compiler")


def place(arrays: Arrays) -> list[Any]:
    """Arrays in the memory of IREE's device."""
    runtime, config = _runtime_config()
    return [runtime.asdevicearray(config.device, np.asarray(x)) for x in arrays]


def load(code: bytes) -> Callable[..., Any]:
    """Load compiled code, and return its only public function.

    The function takes arrays that `place` returned. Its result is an array of the device,
    or a tuple of arrays.
    """
    runtime, config = _runtime_config()
    module = runtime.VmModule.copy_buffer(config.vm_instance, code)
    bound = runtime.load_vm_module(module, config)
    (name,) = (n for n in module.function_names if not n.startswith("__"))
    return bound[name]


def fetch(results: Any) -> list[NDArray[Any]]:
    """Results of a loaded function as NumPy arrays."""
    many = results if isinstance(results, tuple | list) else (results,)
    return [np.array(each.to_host()) for each in many]


def cpu_name() -> str:
    """The name of this machine's CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
