"""A compilation that asks a learned policy, which another process answers."""

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
from pathlib import Path

from meshwright.features.policies.compiler.driving.commands import object_of
from meshwright.features.policies.compiler.driving.processes import (
    end_group,
    ended_with_parent,
)
from meshwright.features.policies.compiler.driving.sections import text_bytes
from meshwright.features.policies.compiler.driving.settings import Settings, add_note

_IDLE_S = 5.0
"""Seconds without CPU time of the compiler after which the policy is taken to hang."""

INLINE_OPTIONS = (
    "-enable-ml-inliner=release",
    "-inliner-interactive-include-default",
    "-ml-advisor-size-increase-threshold=1e9",  # else none is asked after doubling
    "-inliner-interactive-channel-base=",
)
"""Options of the channel of inlining; the name of the fifos is appended to the last."""


def advise(
    settings: Settings, command: list[str], arguments: list[str], source: str
) -> int:
    """Compile with a policy's decisions; plainly if there are none.

    Where the policy has overruled the compiler, and settings say so, the file is compiled
    plainly as well, and the smaller object is kept.
    """
    out = Path(object_of(arguments, source))
    note: dict[str, object] = {"before": 0, "after": 0, "fault": ""}
    note |= {"object": os.path.relpath(out, settings["root"]), "decisions": 0}
    advised = out.with_name(f".{out.name}.advised")
    errors = b""
    try:
        errors, answers = _advised(settings, command, advised)
        note |= answers
    except (OSError, ValueError) as fault:
        note["fault"] = str(fault) or type(fault).__name__
        advised.unlink(missing_ok=True)
    is_plain = not advised.exists() or (note.get("changed") and settings["check"])
    if is_plain:
        quiet = subprocess.DEVNULL if advised.exists() else None
        status = subprocess.run(command, check=False, stderr=quiet).returncode
        if not advised.exists() and (status or not out.exists()):
            return status
    if errors:
        os.write(2, errors)
    with contextlib.suppress(OSError, ValueError, struct.error):
        note |= _kept(out, advised, checked=bool(is_plain))
    if advised.exists():
        advised.replace(out)
    add_note(settings, note)
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


def _advised(
    settings: Settings, command: list[str], out: Path
) -> tuple[bytes, dict[str, object]]:
    """Make an object with a policy: what the compiler printed, and counts of answers.

    `OSError` or `ValueError` if the policy's process is gone, fails or hangs.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_IDLE_S)
        line.connect(settings["socket"])
        # The policy's process makes the fifos and their folder, and removes them.
        base = line.recv(4096).decode().strip()
        if not base:
            raise ValueError("the policy process ended")
        options = [*INLINE_OPTIONS[:-1], f"{INLINE_OPTIONS[-1]}{base}"]
        extra = [part for option in options for part in ("-mllvm", option)]
        with Path(f"{base}.errors").open("w+b") as errors:
            process = subprocess.Popen(
                ended_with_parent([*command, *extra, "-o", str(out)]),
                stderr=errors,
                start_new_session=True,
            )
            try:
                _wait(process, line, settings["seconds"])
            finally:
                end_group(process)
            if process.returncode:
                raise ValueError("the compilation with the policy fails")
            errors.seek(0)
            printed = errors.read()
        line.shutdown(socket.SHUT_WR)
        answers = json.loads(line.makefile().readline() or "{}")
        if answers.get("fault") or "decisions" not in answers:
            raise ValueError(answers.get("fault") or "the policy process ended")
        return printed, answers


def _wait(
    process: "subprocess.Popen[bytes]", line: socket.socket, seconds: float
) -> None:
    """Wait for a compiler; fail if its policy has ended, or if both wait."""
    spent, waited = -1.0, 0.0
    running = os.pidfd_open(process.pid)
    try:
        while waited < seconds:
            ready = select.select([running, line], [], [], _IDLE_S)[0]
            if running in ready:
                return
            if line in ready:
                raise ValueError("the policy process ended")
            waited += _IDLE_S
            before, spent = spent, _cpu_s(process.pid)
            if spent == before:
                break
    finally:
        os.close(running)
    raise ValueError("the policy hangs")


def _cpu_s(pid: int) -> float:
    """CPU time of a process and its ended children, in ticks of the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return float(sum(int(each) for each in fields[11:15]))
