"""Processes of this machine: those below one, and pauses."""

import contextlib
import os
import signal
import threading
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Ids of the processes below one."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found, todo = [], [pid]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children
    return found


def controllers_below(pid: int) -> list[int]:
    """Ids of the controllers of clusters that a process has started."""
    return _actors_below(pid, b"ray::ControllerActor")


def workers_below(pid: int) -> list[int]:
    """Ids of the workers of clusters that a process has started."""
    return _actors_below(pid, b"ray::WorkerActor")


def _actors_below(pid: int, name: bytes) -> list[int]:
    found = []
    for each in descendants(pid):
        with contextlib.suppress(OSError):  # ended meanwhile
            line = Path(f"/proc/{each}/cmdline").read_bytes()
            found += [each] if name in line else []
    return found


def stop_for(pid: int, seconds: float) -> threading.Timer:
    """Stop a process, unless it has ended; the timer lets it go on."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(seconds, _go_on, (pid,))
    timer.start()
    return timer


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
