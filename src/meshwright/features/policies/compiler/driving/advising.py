"""A compilation that asks a learned policy, which another process answers."""

import contextlib
import json
import os
import socket
import struct
import subprocess
from pathlib import Path

from meshwright.features.policies.compiler.driving.calls import CompilerCall
from meshwright.features.policies.compiler.driving.commands import (
    dependency_flags,
    object_of,
)
from meshwright.features.policies.compiler.driving.sections import text_bytes
from meshwright.features.policies.compiler.driving.settings import Settings

_IDLE_S = 5.0
"""Seconds without CPU time of the compiler after which the policy is taken to hang."""

CHANNELS = {
    "inline": (
        "-enable-ml-inliner=release",
        "-inliner-interactive-include-default",
        "-ml-advisor-size-increase-threshold=1e9",  # else none is asked after doubling
        "-inliner-interactive-channel-base=",
    ),
    "evict": (
        "-regalloc-enable-advisor=release",
        "-regalloc-evict-interactive-channel-base=",
    ),
    "priority": (
        "-regalloc-enable-priority-advisor=release",
        "-regalloc-priority-interactive-channel-base=",
    ),
}
"""Options of each decision's channel; the name of the fifos is appended to the last one."""


def channel_options(kind: str, base: str) -> list[str]:
    """Arguments of clang that open the channel of a decision at fifos of this name."""
    *options, last = CHANNELS[kind]
    return [part for each in (*options, last + base) for part in ("-mllvm", each)]


def advise(
    settings: Settings, call: CompilerCall, command: list[str], source: str
) -> int:
    """Compile with a policy's decisions; plainly if there are none.

    Where the policy has overruled the compiler, and settings say so, the file is compiled
    plainly as well, and the smaller object is kept.
    """
    out = call.path(object_of(call.arguments, source))
    note: dict[str, object] = {"before": 0, "after": 0, "fault": ""}
    note |= {"object": os.path.relpath(out, settings.root), "decisions": 0}
    advised = out.with_name(f".{out.name}.advised")
    asking = [*command, *dependency_flags(call.arguments, source)]
    try:
        try:
            answers, printed = ask(settings, call, asking, advised)
            call.tell(printed)
            note |= answers
        except (OSError, ValueError) as fault:
            note["fault"] = str(fault) or type(fault).__name__
            advised.unlink(missing_ok=True)
        if not advised.exists():
            status = call.run(command)
            if status or not out.exists():
                return status
        is_checked = bool(note.get("changed")) and settings.check and advised.exists()
        if is_checked:
            call.run(command, subprocess.DEVNULL)
        with contextlib.suppress(OSError, ValueError, struct.error):
            note |= _kept(out, advised, checked=is_checked)
        if advised.exists():
            advised.replace(out)
    finally:
        advised.unlink(missing_ok=True)
    settings.notes.append(note)
    return 0


def _kept(out: Path, advised: Path, *, checked: bool) -> dict[str, object]:
    """Sizes of the plain and the kept object; a larger advised one is removed."""
    if not advised.exists():
        size = text_bytes(out)
        return {"before": size, "after": size}
    after = text_bytes(advised)
    if not checked:
        return {"before": after, "after": after}
    before = text_bytes(out)
    if after > before:
        advised.unlink()
    return {"before": before, "after": min(before, after)}


def ask(
    settings: Settings, call: CompilerCall, command: list[str], out: Path
) -> tuple[dict[str, object], bytes]:
    """Make a file with a policy: counts of its answers, and what the compiler prints.

    `OSError` or `ValueError` if the policy's process is gone, fails or hangs.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_IDLE_S)
        line.connect(settings.socket)
        # The policy's process makes the fifos and their folder, and removes them.
        base = line.recv(4096).decode().strip()
        if not base:
            raise ValueError("the policy process ended")
        extra = channel_options(settings.decides, base)
        with Path(f"{base}.errors").open("w+b") as errors:
            asking = [*command, *extra, "-o", str(out)]
            with call.started(asking, errors) as process:
                _wait(call, process, line, settings.seconds)
            if process.returncode:
                raise ValueError("the compilation with the policy fails")
            errors.seek(0)
            printed = errors.read()
        line.shutdown(socket.SHUT_WR)
        answers = json.loads(line.makefile().readline() or "{}")
        if answers.get("fault") or "decisions" not in answers:
            raise ValueError(answers.get("fault") or "the policy process ended")
        return answers, printed


def _wait(
    call: CompilerCall,
    process: "subprocess.Popen[bytes]",
    line: socket.socket,
    seconds: float,
) -> None:
    """Wait for a compiler; fail if its policy has ended, or if both wait."""
    spent, waited = -1.0, 0.0
    while waited < seconds:
        if call.wait(process, _IDLE_S, line):
            return
        waited += _IDLE_S
        before, spent = spent, _cpu_s(process.pid)
        if spent == before:
            break
    raise ValueError("the policy hangs")


def _cpu_s(pid: int) -> float:
    """CPU time of a process and its ended children, in ticks of the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return float(sum(int(each) for each in fields[11:15]))
