"""One file compiled by a stock clang, with decisions from callbacks or a replay file."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Advise, Channel, check_kinds
from meshwright.features.policies.compiler.clang import find_clang
from meshwright.features.policies.compiler.conversation import converse
from meshwright.features.policies.compiler.driving.advising import channel_options
from meshwright.features.policies.compiler.driving.object_file import function_bytes
from meshwright.features.policies.compiler.driving.processes import run_group
from meshwright.features.policies.compiler.driving.remarks import replay_flags
from meshwright.features.policies.compiler.driving.sections import text_bytes
from meshwright.features.policies.compiler.registers.costs import (
    FunctionCost,
    cost_flags,
    function_costs,
)
from meshwright.features.policies.compiler.registers.spills import (
    recorded_cycles,
    spill_flags,
)
from meshwright.features.policies.compiler.replay import (
    CallSite,
    Decisions,
    inlined_sites,
    write_replay,
)


@dataclass(frozen=True, slots=True)
class ClangObject:
    """An object and how it came about.

    decisions: the answers of the policy, by kind. inlined: the calls that were inlined;
        empty unless decisions were replayed. functions: bytes by function, if asked for;
        "" names the bytes of none. spill_cycles: modelled cycles of spill code in one call,
        by function, if asked for; functions without any are left out. fault: why the
        compiler's own heuristic decided, in spite of a policy; "" if it did not.
    """

    object: bytes
    text_bytes: int
    decisions: Mapping[str, Sequence[float]]
    inlined: frozenset[CallSite] = frozenset()
    functions: Mapping[str, int] = field(default_factory=dict[str, int])
    spill_cycles: Mapping[str, float] = field(default_factory=dict[str, float])
    fault: str = ""


class ClangCompiler:
    """A stock clang; a context manager, whose end removes its temporary files.

    name: a program's name or path; `None` takes whatever clang is found.
    seconds: limit on the time of one compilation, with the policy's.
    """

    def __init__(self, name: str | None = None, *, seconds: float = 120) -> None:
        self.clang = find_clang(name)
        self.seconds = seconds
        self._folder = Path(tempfile.mkdtemp(prefix="meshwright-clang-"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove temporary files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def compile(
        self,
        source: str | Path,
        flags: Sequence[str] = ("-Oz",),
        *,
        inline: Advise | None = None,
        evict: Advise | None = None,
        priority: Advise | None = None,
        measure_spills: bool = False,
    ) -> ClangObject:
        """Compile a file; each policy is called for each decision of its kind.

        If a policy raises, or the time limit passes, the compiler's own heuristic makes
        all decisions. `PolicyError` if the command fails by itself.

        measure_spills: whether to model the cycles of spill code.
        """
        given = {"inline": inline, "evict": evict, "priority": priority}
        policies = {kind: fn for kind, fn in given.items() if fn is not None}
        check_kinds(policies)
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            folder = Path(place)
            record = folder / "spills.yaml"
            if measure_spills:
                flags = (*flags, *spill_flags(str(record)))
            made = self._advised(source, flags, policies, folder) if policies else ""
            fault = made if isinstance(made, str) else ""
            if isinstance(made, str):
                made = self._run(source, flags, folder)[0], {}
            out, decisions = made
            return ClangObject(
                out.read_bytes(),
                text_bytes(out),
                decisions,
                spill_cycles=recorded_cycles(record),
                fault=fault,
            )

    def register_costs(
        self,
        source: str | Path,
        flags: Sequence[str] = ("-O2",),
        *,
        evict: Advise | None = None,
        priority: Advise | None = None,
    ) -> dict[str, FunctionCost]:
        """Costs of register allocation of each function of a file, by its name.

        `PolicyError` if the command or a policy fails.
        """
        given = {"evict": evict, "priority": priority}
        policies = {kind: fn for kind, fn in given.items() if fn is not None}
        check_kinds(policies)
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            folder = Path(place)
            record = folder / "spills.yaml"
            asked = (*flags, *cost_flags(str(record)))
            if policies:
                made = self._advised(source, asked, policies, folder)
                if isinstance(made, str):
                    raise PolicyError(f"{source} was not compiled: {made}")
                text, _ = made
            else:
                text, _ = self._run(source, asked, folder)
            try:
                return function_costs(text, record)
            except ValueError as fault:
                raise PolicyError(f"{source}: {fault}") from None

    def replay(
        self,
        source: str | Path,
        flags: Sequence[str],
        decisions: Decisions,
        fallback: str = "Original",
        *,
        by_function: bool = False,
    ) -> ClangObject:
        """Compile a file with decisions about inlining, without a policy process.

        fallback: who decides about other calls, as in `replay_flags`. by_function:
            measure each function, in a section of its own.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            folder = Path(place)
            write_replay(folder / "replay", decisions)
            remarks = ("-Rpass=inline", "-fno-caret-diagnostics")
            # An empty file is refused, and the heuristic needs none.
            extra = ["-g1"]
            if decisions or fallback != "Original":
                if not decisions:
                    nothing = CallSite("-", ("-:0:0",))
                    write_replay(folder / "replay", {nothing: False})
                extra = replay_flags(str(folder / "replay"), fallback)
            split = ("-ffunction-sections",) if by_function else ()
            out, text = self._run(source, (*flags, *remarks, *extra, *split), folder)
            return ClangObject(
                out.read_bytes(),
                text_bytes(out),
                {},
                inlined_sites(text),
                function_bytes(out) if by_function else {},
            )

    def ir(self, source: str | Path, flags: Sequence[str]) -> str:
        """The LLVM IR of a file before any optimisation, with places of lines."""
        options = ("-g1", "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes")
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            out, _ = self._run(source, (*flags, *options), Path(place))
            return out.read_text()

    def bitcode(self, source: str | Path, flags: Sequence[str]) -> bytes:
        """The optimised IR of a file, from which only machine code has to be made.

        Compiled with `-x ir -Xclang -disable-llvm-passes`, it gives the same code.
        """
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            out, _ = self._run(source, (*flags, "-emit-llvm"), Path(place))
            return out.read_bytes()

    def _run(
        self, source: str | Path, flags: Sequence[str], folder: Path
    ) -> tuple[Path, str]:
        """The object file, and what the compiler printed."""
        out = folder / "object.o"
        command = [*self.clang.command, *flags, *_action(flags), str(source)]
        command += ["-o", str(out)]
        try:
            done = run_group(
                command,
                self.seconds,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except subprocess.TimeoutExpired:
            raise PolicyError(
                f"{source} took more than {self.seconds:g} s to compile; give a larger"
                " limit (seconds)"
            ) from None
        text = done.stderr.decode(errors="replace")
        if done.returncode:
            lines = [line for line in text.splitlines() if "error" in line] or [text]
            raise PolicyError(
                f"{source} does not compile by itself with {' '.join(flags)}:"
                f" {lines[0][:300]}"
            )
        return out, text

    def _advised(
        self,
        source: str | Path,
        flags: Sequence[str],
        policies: Mapping[str, Advise],
        folder: Path,
    ) -> tuple[Path, Mapping[str, Sequence[float]]] | str:
        """The file that a compilation with policies makes, and answers; or its fault."""
        channels = {
            kind: Channel(folder / kind, policy) for kind, policy in policies.items()
        }
        extra = [
            part
            for kind in channels
            for part in channel_options(kind, str(folder / kind))
        ]
        out = folder / "object.o"
        command = [*self.clang.command, *flags, *extra, *_action(flags), str(source)]
        fault = converse([*command, "-o", str(out)], channels, self.seconds)
        if fault:
            return fault
        return out, {kind: tuple(each.decisions) for kind, each in channels.items()}


def _action(flags: Sequence[str]) -> tuple[str, ...]:
    """The flag for an object, unless a compilation makes assembler text."""
    return () if "-S" in flags else ("-c",)
