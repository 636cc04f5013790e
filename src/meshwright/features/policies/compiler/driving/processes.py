"""Compilers as process groups, which end with all their children."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

_SETPRIV = Path("/usr/bin/setpriv")


def ended_with_parent(command: list[str]) -> list[str]:
    """A command that Linux kills when this process ends.

    A clang reads forever if the other end of its channel is gone.
    """
    if _SETPRIV.exists():
        return [str(_SETPRIV), "--pdeathsig", "KILL", *command]
    return command


def run_group(
    command: list[str],
    seconds: float,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` that ends the children of a command, too, when its time is up."""
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except BaseException:
            end_group(process)
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, errors)


def end_group(process: "subprocess.Popen[Any]") -> None:
    """Kill a process that leads a session, and its children.

    A compiler may run in a child: `python -m ziglang` starts one.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
