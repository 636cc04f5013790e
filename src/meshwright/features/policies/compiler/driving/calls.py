"""One call of a compiler by a build, which another process asks us to answer."""

import contextlib
import os
import select
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from meshwright.features.policies.compiler.driving.processes import (
    end_group,
    ended_with_parent,
)


@dataclass(frozen=True, slots=True)
class CompilerCall:
    """A call: what the build wants, and the surroundings that its compiler finds.

    line: connects the process that the build started; it is closed if that has ended.
    streams: its standard input, output and error, as numbers of open files of ours.
    """

    language: str
    arguments: list[str]
    folder: Path
    environment: dict[bytes, bytes]
    streams: list[int]
    mask: int
    line: socket.socket

    @classmethod
    def received(cls, line: socket.socket) -> Self:
        """The call that `stand_in.py` sends; `EOFError` if it has ended meanwhile."""
        start, streams, _, _ = socket.recv_fds(line, 8, 3)
        length, content = int.from_bytes(start, "little"), b""
        while len(content) < length:
            more = line.recv(length - len(content))
            if not more:
                break
            content += more
        if not length or len(content) < length:
            for number in streams:
                os.close(number)
            raise EOFError("the build's process ended")
        language, mask, count, folder, *rest = content.split(b"\0")
        variables = [each.split(b"=", 1) for each in rest[: int(count)]]
        return cls(
            language.decode(),
            [os.fsdecode(word) for word in rest[int(count) :]],
            Path(os.fsdecode(folder)),
            dict[bytes, bytes](variables),
            list(streams),
            int(mask),
            line,
        )

    def close(self) -> None:
        """Close what the other process has given."""
        for number in self.streams:
            os.close(number)

    def path(self, name: str) -> Path:
        """A path that the build's process names."""
        return self.folder / name

    def tell(self, text: bytes) -> None:
        """Write to the standard error of the build's process, if it still reads."""
        with contextlib.suppress(OSError):
            while text:
                text = text[os.write(self.streams[2], text) :]

    @contextmanager
    def started(
        self, command: list[str], errors: Any = None
    ) -> Generator["subprocess.Popen[bytes]"]:
        """A compiler, started as the build would; it ends with this context.

        errors: a file for what it prints, instead of the build's.
        """
        process = subprocess.Popen(
            ended_with_parent(command),
            cwd=self.folder,
            env=self.environment,
            stdin=self.streams[0],
            stdout=self.streams[1],
            stderr=self.streams[2] if errors is None else errors,
            umask=self.mask,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end_group(process)

    def run(
        self, command: list[str], errors: Any = None, seconds: float | None = None
    ) -> int:
        """Exit status of a compiler; `EOFError` if the build's process ends first.

        seconds: time after which a `subprocess.TimeoutExpired` ends the compiler.
        """
        with self.started(command, errors) as process:
            if not self.wait(process, seconds):
                raise subprocess.TimeoutExpired(command, seconds or 0)
        return process.returncode

    def wait(
        self,
        process: "subprocess.Popen[bytes]",
        seconds: float | None,
        policy: socket.socket | None = None,
    ) -> bool:
        """Whether a compiler ends within a time; `EOFError` if its build is gone.

        policy: the line of a policy, whose end is a `ValueError`.
        """
        running = os.pidfd_open(process.pid)
        try:
            events = select.poll()
            for each in (running, self.line, *([] if policy is None else [policy])):
                events.register(each, select.POLLIN)
            limit = None if seconds is None else 1000 * seconds
            ready = {number for number, _ in events.poll(limit)}
        finally:
            os.close(running)
        if running in ready:
            process.wait()
            return True
        if self.line.fileno() in ready:
            raise EOFError("the build's process ended")
        if ready:
            raise ValueError("the policy process ended")
        return False
