"""What a compiler that needs no device is asked, and what it says of a step."""

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
    """What a compiler says of a step, per device.

    peak_bytes: arguments, results and all that is allocated beside them at once.
    fits: false where the compiler refused for want of memory, peak_bytes then being
        what it says it needs, or where the peak is more than a program may have.
    hlo: the scheduled program, optimised.
    flops: as XLA counts them in that program; a loop's body counts once. None where
        it refused, or leaves products to a library.
    collectives: its collectives, with what its scheduler believes that they take.
    cycles: the sum of what it estimates for each fusion, loops multiplied; None where
        it was stopped early or does not estimate.
    memory: what the runtime would be told, by name; None where it was stopped early.
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
    """A compiler's process that is over, and where its files lie.

    log: all that it printed. elapsed_s: how long it ran. full: it might finish.
    """

    folder: Path
    log: str
    elapsed_s: float
    full: bool

    @property
    def dump(self) -> Path:
        """The folder of what it wrote on its way."""
        return self.folder / "dump"

    def result(self) -> Compiled | None:
        """What it says of a compilation that it finished; None if it did not."""
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

    def memory(self, program: str, report: str) -> tuple[str, int]:
        """The program, and the bytes of main memory that it needs.

        program, report: patterns of the files that tell them. Raises `CompilerError`
        with the last error in the log where there are none.
        """
        hlo, told = self.dumped(program), self.dumped(report)
        total = _TOTAL.search(told) if told else None
        if hlo is None or total is None:
            errors = _ERROR.findall(self.log) or [self.log.strip()[-500:]]
            raise CompilerError(f"the compiler failed: {errors[-1]}")
        return hlo, int(total[1])

    def dumped(self, pattern: str) -> str | None:
        """The largest file so called, for small modules come along; None if none."""
        paths = sorted(self.dump.glob(pattern), key=lambda path: path.stat().st_size)
        return paths[-1].read_text(encoding="utf-8") if paths else None


Target = tuple[str, Mapping[str, object]]
"""A topology's name and options, as `jax.experimental.topologies` takes them."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One of XLA's compilers, as a package without its devices.

    platform: what JAX calls it. modules: of which it consists, in Python; the extra of
        Meshwright that installs them is called like the machine's compiler.
    target: what to compile for. environment: for its process.
    program, report: patterns of the files that tell the program, and its memory. They
        are there before code is generated, and the process may then be ended.
    tells_time: whether it says what generated code takes: else nobody waits for it.
    read: what a process that is over says; `CompilerError` if it failed.
    """

    platform: str
    modules: tuple[str, ...]
    target: Callable[[Machine], Target]
    environment: Mapping[str, str]
    program: str
    report: str
    tells_time: bool
    read: Callable[[Ended, Machine], Compiled]

    def has_memory(self, dump: Path) -> bool:
        """Whether a folder of a compiler's files tells memory."""
        return all(any(dump.glob(each)) for each in (self.program, self.report))
