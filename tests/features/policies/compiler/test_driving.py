"""Programs in the place of a compiler, which run it themselves if nobody answers."""

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from meshwright.features.policies.compiler.compiler import ClangCompiler
from meshwright.features.policies.compiler.driving import call_server
from meshwright.features.policies.compiler.driving.call_server import (
    compiler_programs,
    stand_in_program,
)
from meshwright.features.policies.compiler.driving.calls import CompilerCall
from meshwright.features.policies.compiler.driving.commands import dependency_flags
from meshwright.features.policies.compiler.driving.settings import PLAIN, Settings

COMPILER = ["/bin/sh", "-c", 'echo "plain $*"; exit 7', "sh"]


@pytest.fixture(params=["c", "python"])
def stand_in(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "python":
        return stand_in_program(["/no/compiler"], tmp_path)
    compiler: ClangCompiler = request.getfixturevalue("cc")
    made = stand_in_program(list(compiler.clang.command), tmp_path)
    assert made == [str(tmp_path / "stand-in")]
    return made


def answered(
    stand_in: list[str], folder: Path, answer: Callable[[socket.socket], None] | None
) -> "subprocess.CompletedProcess[bytes]":
    """A call of a compiler with two arguments, answered at a socket."""
    path = str(folder / "socket")
    command = [*stand_in, path, "c", str(len(COMPILER)), *COMPILER, "a b", "\udcff"]
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        thread = threading.Thread(target=lambda: serve_once(server, answer))
        if answer is None:
            server.close()
        else:
            thread.start()
        done = subprocess.run(
            command, cwd=folder, env={"A": "1=\n2"}, capture_output=True, check=False
        )
        if answer is not None:
            thread.join()
    return done


def serve_once(
    server: socket.socket, answer: Callable[[socket.socket], None] | None
) -> None:
    line, _ = server.accept()
    with line:
        if answer is not None:
            answer(line)


def test_a_call_comes_as_it_was_made(stand_in: list[str], tmp_path: Path) -> None:
    calls: list[CompilerCall] = []

    def answer(line: socket.socket) -> None:
        call = CompilerCall.received(line)
        calls.append(call)
        call.tell(b"a warning")
        call.close()
        line.sendall(b"3")

    done = answered(stand_in, tmp_path, answer)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"a warning")
    (call,) = calls
    assert (call.language, call.folder) == ("c", tmp_path)
    assert call.arguments == ["a b", "\udcff"]
    assert call.environment[b"A"] == b"1=\n2"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        lambda line: None,  # it ends before it has read
        lambda line: CompilerCall.received(line).close(),  # and after that
        lambda line: line.sendall(b"plain"),
    ],
)
def test_without_an_answer_the_compiler_runs(
    stand_in: list[str],
    tmp_path: Path,
    answer: Callable[[socket.socket], None] | None,
) -> None:
    done = answered(stand_in, tmp_path, answer)
    assert (done.returncode, done.stdout) == (7, b"plain a b \xff\n")


def test_a_fault_of_ours_leaves_the_compiler(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(settings: Settings, call: CompilerCall) -> int:
        raise RuntimeError("no status")

    monkeypatch.setattr(call_server, "compile_call", fail)
    commands = {"c": COMPILER, "c++": COMPILER}
    with compiler_programs(Settings(commands, "record", [], tmp_path)) as folder:
        done = subprocess.run([folder / "cc", "-c"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (7, b"plain -c\n")
    assert "no status" in capsys.readouterr().err


def test_a_compiler_ends_with_the_program_that_asked(tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text("")
    script = 'case "$*" in *f.c*) echo $$ > pid; sleep 60;; esac; exit 1'
    slow = ["/bin/sh", "-c", script, "sh"]
    settings = Settings({"c": slow, "c++": slow}, "record", [], tmp_path)
    with compiler_programs(settings) as folder:
        asking = subprocess.Popen([folder / "cc", "-c", "f.c"], cwd=tmp_path)
        pid = tmp_path / "pid"
        while not pid.exists() or not pid.read_text().strip():
            time.sleep(0.01)
        asking.kill()
        asking.wait()
        there = Path("/proc", pid.read_text().strip(), "cmdline")
        until = time.monotonic() + 20
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            while there.read_bytes():
                assert time.monotonic() < until, "the compiler still runs"
                time.sleep(0.01)


def test_a_try_of_a_configuration_is_no_unit(tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text("")
    settings = Settings({"c": COMPILER, "c++": COMPILER}, "record", [], tmp_path)
    with compiler_programs(settings) as folder:
        subprocess.run(
            [folder / "cc", "-c", "f.c"], cwd=tmp_path, env={PLAIN: "1"}, check=False
        )
    assert settings.notes == []


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ("-c a.c -o b/a.o", ""),
        ("-MD -c a.c -o b/a.o", "-MT b/a.o -MF b/a.d"),
        ("-MMD -c a.c", "-MT a.o -MF a.d"),
        ("-MD -MF x.d -c a.c -o a.o", "-MT a.o"),
        ("-MD -MT y -c a.c -o a.o", "-MF a.d"),
        ("-Wp,-MD,x.d -c a.c -o a.o", "-MT a.o"),
    ],
)
def test_dependencies_are_named_after_the_build(arguments: str, flags: str) -> None:
    assert dependency_flags(arguments.split(), "a.c") == flags.split()
