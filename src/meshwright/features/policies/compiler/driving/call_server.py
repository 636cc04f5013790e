"""The process that runs a build compiles for it, as programs of the build ask it to."""

import contextlib
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from meshwright.features.policies.compiler.driving.calls import CompilerCall
from meshwright.features.policies.compiler.driving.main import compile_call
from meshwright.features.policies.compiler.driving.processes import run_group
from meshwright.features.policies.compiler.driving.settings import Settings

_NAMES = {
    "c": ("cc", "gcc", "clang", *(f"clang-{n}" for n in range(17, 31))),
    "c++": ("c++", "g++", "clang++", *(f"clang++-{n}" for n in range(17, 31))),
}
"""Names by which builds call a compiler."""

_MAKING_S = 60.0
"""Seconds after which the program of C is given up, and the one of Python taken."""


class _Server(socketserver.ThreadingUnixStreamServer):
    """Answers the calls of one build, each in a thread."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, path: Path, settings: Settings) -> None:
        super().__init__(str(path), _Handler)
        self.settings = settings


class _Handler(socketserver.BaseRequestHandler):
    """One call of the compiler."""

    def handle(self) -> None:
        """Compile, and answer with the exit status; whatever fails, the build goes on."""
        assert isinstance(self.server, _Server), "a handler of this server"
        status = None
        # `EOFError`: nobody waits for an answer any more.
        with contextlib.suppress(EOFError, BrokenPipeError):
            call = CompilerCall.received(self.request)
            try:
                status = compile_call(self.server.settings, call)
            finally:
                call.close()
                # The status of a process that a signal ended, as shells tell it.
                shown = (
                    "plain"
                    if status is None
                    else str(status if status >= 0 else 128 - status)
                )
                self.request.sendall(shown.encode())


@contextmanager
def compiler_programs(settings: Settings) -> Generator[Path]:
    """A folder with programs called cc, gcc, clang, ..., which ask us to compile."""
    with tempfile.TemporaryDirectory(prefix="meshwright-driver-") as place:
        folder = Path(place)
        with _Server(folder / "socket", settings) as server:
            stand_in = stand_in_program(settings.command["c"], folder)
            for language, names in _NAMES.items():
                command = settings.command[language]
                start = [*stand_in, str(folder / "socket"), language, str(len(command))]
                for name in names:
                    program = folder / name
                    text = shlex.join([*start, *command])
                    program.write_text(f'#!/bin/sh\nexec {text} "$@"\n')
                    program.chmod(0o755)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield folder
            finally:
                server.shutdown()


def stand_in_program(compiler: list[str], folder: Path) -> list[str]:
    """The command that stands in the place of a compiler: of C, or else of Python.

    A build starts it for every file. The interpreter takes 10 ms of CPU time for that,
    while small files compile in 100; the program of C is made in less than 10 starts.
    """
    source, program = Path(__file__).with_name("stand_in.c"), folder / "stand-in"
    making = [*compiler, "-O1", "-w", "-static", str(source), "-o", str(program)]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        made = run_group(
            making,
            _MAKING_S,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        # Without arguments it only ends; it may have been made for another machine.
        if (
            made.returncode == 0
            and subprocess.run([program], check=False).returncode == 1
        ):
            return [str(program)]
    return [sys.executable, "-I", "-S", str(source.with_suffix(".py"))]
