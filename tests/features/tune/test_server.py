"""The process of a compiler that lives on: time limits, failures and interruptions."""

import fcntl
import signal
import subprocess
import sys
import time

import pytest

from meshwright.errors import CompilerError
from meshwright.features.tune.compiler_server.server import CompilerHost, CompilerServer

HOST = CompilerHost("cpu", ("", {}), {})


@pytest.fixture
def child(monkeypatch, tmp_path):
    """A function that makes a module of this source the compiler's process."""

    def use(source):
        (tmp_path / "silly_child.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(
            "meshwright.features.tune.compiler_server.server._CHILD", "silly_child"
        )
        assert str(tmp_path) in sys.path

    return use


def measure(server):
    return server.measure(["x"], 1, 0.0, 0)


def test_a_process_that_is_too_slow_is_ended_and_the_next_request_starts_another(child):
    child("import time\ntime.sleep(600)\n")
    with CompilerServer(HOST, timeout_s=0.2) as server:
        with pytest.raises(CompilerError, match=r"longer than 0\.2 s"):
            measure(server)
        child("for _ in open(0): print('{\"seconds\": []}', flush=True)\n")
        server.timeout_s = 60.0
        measure(server)


def test_a_process_that_dies_is_an_error_with_what_it_printed_last(child):
    child("import sys\nsys.exit('no memory left')\n")
    with (
        CompilerServer(HOST) as server,
        pytest.raises(CompilerError, match="ended: no memory left"),
    ):
        measure(server)


def test_an_error_in_the_process_is_an_error_here(child):
    child("""for _ in open(0): print('{"error": "E: no such op"}', flush=True)\n""")
    with (
        CompilerServer(HOST) as server,
        pytest.raises(CompilerError, match="failed: E: no such op"),
    ):
        measure(server)


def test_no_request_gets_the_answer_of_an_interrupted_one(child, monkeypatch):
    child(
        "for n, _ in enumerate(open(0)): print('{\"seconds\": [[%d]]}' % n, flush=True)\n"
    )

    def interrupted(server, process):
        raise KeyboardInterrupt

    with CompilerServer(HOST) as server:
        assert measure(server) == [[0]]
        with monkeypatch.context() as patch:
            patch.setattr(CompilerServer, "_answer", interrupted)
            with pytest.raises(KeyboardInterrupt):
                measure(server)
        assert measure(server) == [[0]]  # of a new process


_CHILD = """
import fcntl, time
from meshwright.features.tune.compiler_server import server_child

def compile_long(request):
    lock = open({lock!r}, "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    open({begun!r}, "w").close()
    time.sleep(600)

server_child._ACTIONS["measure"] = compile_long
server_child.serve()
"""

_PARENT = """
from meshwright.features.tune.compiler_server import server
server._CHILD = "long_child"
with server.CompilerServer(server.CompilerHost("cpu", ("", {{}}), {{}})) as compiler:
    compiler.measure(["x"], 1, 0.0, 0)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_no_compiler_running(tmp_path, number):
    lock, begun = tmp_path / "lock", tmp_path / "begun"
    child = _CHILD.format(lock=str(lock), begun=str(begun))
    (tmp_path / "long_child.py").write_text(child)
    path = [str(tmp_path), *(p for p in sys.path if p)]
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {path}\n{_PARENT.format()}"]
    )
    until = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < until:
        time.sleep(0.05)
    parent.send_signal(number)
    assert parent.wait(20) == (143 if number == signal.SIGTERM else -number)
    with lock.open("r+") as held:
        until = time.monotonic() + 20
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < until, "the compiler runs on"
                time.sleep(0.05)
