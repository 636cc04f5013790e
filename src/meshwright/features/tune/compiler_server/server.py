"""A compiler in a long-running process, for many programs one after another.

Unlike `confirm`, whose process is stopped as soon as memory is assigned, it compiles
every program to the end: only then does the TPU compiler estimate cycles.
"""

import contextlib
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from meshwright.app.output.termination import termination_raises
from meshwright.errors import CompilerError
from meshwright.machine import Machine
from meshwright.run.compilers.backend import Target
from meshwright.run.compilers.confirm import (
    DeviceStep,
    export_step,
    find_backend,
    require_module,
)

_CHILD = "meshwright.features.tune.compiler_server.server_child"

type EntryLayout = tuple[int, ...] | str | None
"""Dims major to minor; "auto" if the compiler chooses; `None` for the default."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The layouts of a step's arguments and results, one for each flat array."""

    inputs: tuple[EntryLayout, ...]
    outputs: tuple[EntryLayout, ...]


@dataclass(frozen=True, slots=True)
class CompilerHost:
    """The platform to compile for, and the environment of the compiler's process.

    program: file pattern of the optimised program in the compiler's dump. "" if the
        compiler dumps none; then layouts cannot be screened without a full compilation.
    """

    platform: str
    target: Target
    environment: Mapping[str, str]
    program: str = ""


def host_of(machine: Machine) -> CompilerHost:
    """The host that compiles for a TPU; `CompilerError` if its compiler is missing."""
    backend = find_backend(machine)
    quiet = {k: v for k, v in backend.environment.items() if "LOG" not in k}
    quiet.pop("TPU_VMODULE", None)
    target = backend.target(machine)
    return CompilerHost(backend.platform, target, quiet, backend.program)


def cpu_host(num_devices: int = 1) -> CompilerHost:
    """The host that compiles for this machine's CPU, and runs on one thread.

    Raises `CompilerError` without flatbuffers, in which programs reach its process.
    """
    require_module("flatbuffers", "the measuring of layouts", "tune")
    flags = (
        "--xla_cpu_multi_thread_eigen=false "
        f"--xla_force_host_platform_device_count={num_devices}"
    )
    return CompilerHost("cpu", ("", {}), {"XLA_FLAGS": flags})


@dataclass(eq=False)
class CompilerServer:
    """A process that compiles steps one after another, and is started when needed.

    timeout_s: seconds for one request; the process is then ended, and the next request
        starts another.
    """

    host: CompilerHost
    timeout_s: float = 300.0
    _folder: Any = field(default=None, repr=False)
    _undo: contextlib.ExitStack = field(
        default_factory=contextlib.ExitStack, repr=False
    )
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        self._undo.enter_context(termination_raises())
        self._folder = tempfile.TemporaryDirectory(prefix="meshwright-")
        self._dump.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()
        self._undo.close()

    def compile(self, key: str, step: DeviceStep, entry: Entry) -> dict[str, Any]:
        """Figures of a compiled step, with the text of its program under "hlo".

        key: name under which the step can be measured.
        Raises `CompilerError` if the compiler fails, or takes longer than `timeout_s`.
        """
        request = self._request(step, entry)
        answer = self._ask({**request, "do": "compile", "key": key})
        return {**answer, "hlo": Path(request["hlo"]).read_text(encoding="utf-8")}

    def screen(self, step: DeviceStep, entry: Entry) -> str:
        """The optimised program of a step, without generating code for it.

        Most of the time of `compile` goes into generating code, so this is much faster.
        """
        return self._ask({**self._request(step, entry), "do": "screen"})["optimized"]

    def _request(self, step: DeviceStep, entry: Entry) -> dict[str, Any]:
        folder = Path(self._folder.name)
        exported = folder / "step.bin"
        exported.write_bytes(export_step(step, self.host.platform))
        sizes = dict(step.lowered.mesh.sizes)
        topology, options = self.host.target
        return {
            "step": str(exported),
            "hlo": str(folder / "compiled.hlo"),
            "dump": str(self._dump) if self.host.program else "",
            "pattern": self.host.program,
            "platform": self.host.platform,
            "topology": topology,
            "topology_options": options,
            "mesh_shape": list(sizes.values()),
            "axes": list(sizes),
            "donated": list(step.donated),
            "in_layouts": list(entry.inputs),
            "out_layouts": list(entry.outputs),
        }

    @property
    def _dump(self) -> Path:
        return Path(self._folder.name) / "dump"

    def measure(
        self, keys: Sequence[str], passes: int, least_s: float, seed: int
    ) -> list[list[float]]:
        """CPU seconds of compiled steps: one list per step, one entry per pass."""
        request = {"do": "measure", "keys": list(keys), "passes": passes, "seed": seed}
        return self._ask({**request, "least_s": least_s})["seconds"]

    def restart(self) -> None:
        """End the process, so that the next request starts another."""
        self._end()

    # -- the process -------------------------------------------------------------------

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        process = self._started()
        assert process.stdin is not None, "opened as a pipe"
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                line = self._answer(process)
        except KeyboardInterrupt:
            self._end()  # else its late answer would be taken for that of another request
            raise
        if not line:
            self._end()
            raise CompilerError(f"the process of the compiler ended: {self._last()}")
        answer = json.loads(line)
        if "error" in answer:
            raise CompilerError(f"the compiler failed: {answer['error']}")
        return answer

    def _answer(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None, "opened as a pipe"
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self.timeout_s):
                self._end()
                raise CompilerError(
                    f"the compiler took longer than {self.timeout_s} s for one program"
                )
        return process.stdout.readline()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            log = self._log.open("ab")
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(self.host, self._dump),
                start_new_session=True,  # Ctrl-C ends the search, not a compilation
            )
            log.close()
        return self._process

    @property
    def _log(self) -> Path:
        return Path(self._folder.name) / "log"

    def _last(self) -> str:
        """The last lines that the compiler's process has printed."""
        if not self._log.exists():
            return "it printed nothing"
        return self._log.read_text(encoding="utf-8", errors="replace").strip()[-500:]

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def _environment(host: CompilerHost, dump: Path) -> dict[str, str]:
    flags = (
        os.environ.get("XLA_FLAGS", "") + " " + host.environment.get("XLA_FLAGS", "")
    )
    if host.program:
        flags += f" --xla_dump_to={dump}"
    if host.platform != "cpu":
        flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", flags)
    return {
        **os.environ,
        **host.environment,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags.strip(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
