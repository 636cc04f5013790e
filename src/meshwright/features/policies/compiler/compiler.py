"""One file compiled by a stock clang, with decisions from callbacks or a replay file."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Advise, Channel, check_kinds
from meshwright.features.policies.compiler.clang import find_clang
from meshwright.features.policies.compiler.driving.advising import channel_options
from meshwright.features.policies.compiler.driving.object_file import function_bytes
from meshwright.features.policies.compiler.driving.processes import (
    end_group,
    ended_with_parent,
    run_group,
)
from meshwright.features.policies.compiler.driving.remarks import replay_flags
from meshwright.features.policies.compiler.driving.sections import text_bytes
from meshwright.features.policies.compiler.driving.spills import (
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
            fault = ""
            if policies:
                compiled = self._advised(source, flags, policies, folder)
                if isinstance(compiled, ClangObject):
                    return replace(compiled, spill_cycles=recorded_cycles(record))
                fault = compiled
            out, _ = self._run(source, flags, folder)
            cycles = recorded_cycles(record)
            code, size = out.read_bytes(), text_bytes(out)
            return ClangObject(code, size, {}, spill_cycles=cycles, fault=fault)

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
        action = () if "-S" in flags else ("-c",)
        command = [*self.clang.command, *flags, *action, str(source), "-o", str(out)]
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
    ) -> ClangObject | str:
        """The object of a compilation with policies, or why there is none."""
        channels = {
            kind: Channel(folder / kind, policy) for kind, policy in policies.items()
        }
        extra = [
            part
            for kind in channels
            for part in channel_options(kind, str(folder / kind))
        ]
        out = folder / "object.o"
        command = [*self.clang.command, *flags, *extra, "-c", str(source)]
        fault = _converse([*command, "-o", str(out)], channels, self.seconds)
        if fault:
            return fault
        answers = {kind: tuple(each.decisions) for kind, each in channels.items()}
        return ClangObject(out.read_bytes(), text_bytes(out), answers)


def _converse(
    command: Sequence[str], channels: Mapping[str, Channel], seconds: float
) -> str:
    """Run a compiler and answer it on all channels; why it failed, or "".

    A policy that fails ends the compiler, which would wait for its answer.
    """
    for channel in channels.values():
        channel.open()
    process = subprocess.Popen(
        ended_with_parent(list(command)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    end = os.pidfd_open(process.pid)

    def converse(channel: Channel) -> None:
        channel.converse(end)
        if channel.fault is not None:
            end_group(process)

    threads = [
        threading.Thread(target=converse, args=(channel,), daemon=True)
        for channel in channels.values()
    ]
    for thread in threads:
        thread.start()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"no object after {seconds:g} s: the policy or the compiler hangs"
    finally:
        end_group(process)
        for thread in threads:
            thread.join(1)  # a policy that hangs keeps its thread, and nothing else
        if not any(thread.is_alive() for thread in threads):
            for channel in channels.values():
                channel.close()
            os.close(end)
    return _fault(channels, process.returncode)


def _fault(channels: Mapping[str, Channel], status: int) -> str:
    """Why a compilation with policies failed, or ""."""
    for kind, channel in channels.items():
        if channel.fault is not None:
            what = f"{type(channel.fault).__name__}: {channel.fault}"
            return f"the {kind} policy failed ({what})"
    return f"the compiler ended with {status}" if status else ""
