"""The lock of a directory's only writer.

The operating system holds the lock (`flock`) and frees it when the process ends, however it
ends, so that a dead writer's lock never has to be recognised. The file also says who holds
it, for the message to others. NFS hands such locks on to its server.
"""

import fcntl
import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from meshwright.errors import CheckpointError

_NAME = "writer.lock"


@dataclass(frozen=True, slots=True)
class WriterLock:
    """A lock that this process holds, by its open file."""

    path: Path
    descriptor: int

    def release(self) -> None:
        """Let another process write."""
        os.truncate(self.descriptor, 0)
        os.close(self.descriptor)


def acquire_lock(directory: Path) -> WriterLock:
    """The lock of a directory; `CheckpointError` says who holds it and since when."""
    path = directory / _NAME
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
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
    return WriterLock(path, descriptor)


def _describe(text: str) -> str:
    """`: process 12 on host, since ...`; "" if the holder has not written it yet."""
    try:
        about = json.loads(text)
        return (
            f": process {about['process']} on {about['host']}, since {about['since']}"
        )
    except (ValueError, KeyError, TypeError):
        return ""
