"""The lock that only one writer of a directory holds at a time.

The operating system holds the lock (`flock`) and frees it when the process ends,
however it ends, so that a dead writer's lock never has to be recognised. The lock's
file also says who holds it, for the error message of other processes. NFS passes such
locks on to its server.
"""

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from meshwright.errors import CheckpointError

_NAME = "writer.lock"


def acquire_lock(directory: Path) -> int:
    """Lock a directory for this process; returns the descriptor of the lock's open file.

    Raises `CheckpointError`, naming the holder and since when, if another process has
    the lock.
    """
    descriptor = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 1000, 0).decode(errors="replace")
        os.close(descriptor)
        raise CheckpointError(
            f"{directory} has another writer{_describe(holder)}; wait until it ends, give "
            "another directory, or only read: read_only=True"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise CheckpointError(
            f"{directory} cannot be locked ({error.strerror}); give a directory of a file "
            "system with locks"
        ) from None
    about = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(about).encode(), 0)
    return descriptor


def release_lock(descriptor: int) -> None:
    """Let another process write."""
    os.truncate(descriptor, 0)
    os.close(descriptor)


def _describe(text: str) -> str:
    """The holder of a lock, as `: process 12 on host, since ...`.

    text: content of the lock's file. The result is "" if the holder has not written it
        yet.
    """
    try:
        about = json.loads(text)
        return (
            f": process {about['process']} on {about['host']}, since {about['since']}"
        )
    except (ValueError, KeyError, TypeError):
        return ""
