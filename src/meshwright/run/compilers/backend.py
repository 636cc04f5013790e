"""An ahead-of-time compiler, and its report on a compiled step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import CompilerError
from meshwright.machine import Machine
from meshwright.run.compilers.hlo import HloCollective


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiler's report on a step, per device.

    peak_bytes: largest sum of arguments, results and temporary buffers.
    fits: whether the peak is within the memory that programs may use. If the compiler ran
        out of memory it is False, and peak_bytes is the memory that the compiler asked for.
    compile_s: seconds that the compiler ran.
    hlo: the optimised, scheduled program.
    flops: XLA's count for that program, in which a loop's body counts once. `None` if the
        compiler ran out of memory, or if a library computes products.
    collectives: collectives of the program, with the scheduler's estimates.
    cycles: sum of the compiler's estimates for fusions, times the trip counts of loops
        around them. `None` if the process was stopped early or the compiler estimates none.
    memory: XLA's `CompiledMemoryStats` by name; `None` if the process was stopped early.
    """

    peak_bytes: int
    fits: bool
    compile_s: float
    hlo: str
    flops: float | None = None
    collectives: tuple[HloCollective, ...] = ()
    cycles: float | None = None
    memory: Mapping[str, int] | None = None


_ERROR = re.compile(r"^[\w.]*(?:Error|Exception): .*", re.MULTILINE)
_TOTAL = re.compile(r"\(color=0\)\s*Total bytes: (\d+)")


@dataclass(frozen=True, slots=True)
class Ended:
    """A compiler's process that has ended, and the folder with its files.

    log: everything that it printed.
    elapsed_s: seconds that it ran.
    full: whether it was allowed to generate code, rather than stopped early.
    """

    backend: Backend
    folder: Path
    log: str
    elapsed_s: float
    full: bool

    def result(self) -> Compiled | None:
        """The report on a finished compilation; `None` if it was not finished."""
        path = self.folder / "result.json"
        if not path.exists():
            return None
        memory = json.loads(path.read_text(encoding="utf-8"))
        return Compiled(
            peak_bytes=memory.pop("peak_bytes"),
            fits=True,
            compile_s=memory.pop("compile_s"),
            hlo=(self.folder / "compiled.hlo").read_text(encoding="utf-8"),
            flops=memory.pop("flops"),
            memory=memory,
        )

    def memory(self) -> tuple[str, int]:
        """The program in XLA's dump, and the bytes of main memory that it needs.

        Raises `CompilerError` with the last error in the log if either is missing.
        """
        hlo, usage = self.dumped(self.backend.program), self.dumped(self.backend.report)
        total = _TOTAL.search(usage) if usage else None
        if hlo is None or total is None:
            errors = _ERROR.findall(self.log) or [self.log.strip()[-500:]]
            raise CompilerError(f"the compiler failed: {errors[-1]}")
        return hlo, int(total[1])

    def dumped(self, pattern: str) -> str | None:
        """The text of the largest dumped file that matches a pattern; `None` if none does.

        Smaller files belong to helper modules that XLA compiles along with the program.
        """
        paths = (self.folder / "dump").glob(pattern)
        largest = max(paths, key=lambda path: path.stat().st_size, default=None)
        return None if largest is None else largest.read_text(encoding="utf-8")


Target = tuple[str, Mapping[str, object]]
"""Name and options of a topology for `jax.experimental.topologies`."""


@dataclass(frozen=True, slots=True)
class Backend:
    """An XLA compiler as a Python package, which needs no device.

    platform: JAX's name of it. modules: Python modules that must be installed; the extra
        of Meshwright that installs them has the name of the machine's compiler.
    target: the topology to compile for. environment: variables of its process.
    program, report: file patterns of the program and of its memory report in the dump.
        XLA writes both before it generates code, so that the process may be stopped then.
    estimates_cycles: whether a finished compilation reports cycles; if not, processes are
        always stopped early.
    read: makes the report of a process that ended; raises `CompilerError` if it failed.
    """

    platform: str
    modules: tuple[str, ...]
    target: Callable[[Machine], Target]
    environment: Mapping[str, str]
    program: str
    report: str
    estimates_cycles: bool
    read: Callable[[Ended, Machine], Compiled]
