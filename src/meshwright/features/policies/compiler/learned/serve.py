"""A process that answers the compilers of a build with a learned policy.

A compilation connects to a socket. The process makes fifos and tells their name, answers
decisions until the compilation closes its side, and tells how many there were.
If it is killed, each compilation goes on with the compiler's own heuristic.
"""

import json
import os
import select
import socketserver
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from meshwright.errors import PolicyError
from meshwright.features.policies.compiler.channel import Channel, Observation
from meshwright.features.policies.compiler.learned.policy_file import (
    CompilerPolicy,
    read_policy,
)

_START_S = 60.0
"""Seconds after which a policy process that does not say that it listens is given up."""

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""A process that multiplies no matrices shall not start a thread for each core."""


class _Server(socketserver.ThreadingUnixStreamServer):
    """A server of one policy."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, policy: CompilerPolicy) -> None:
        super().__init__(path, _Handler)
        self.policy = policy


class _Handler(socketserver.StreamRequestHandler):
    """One compilation."""

    def handle(self) -> None:
        """Answer the decisions of a compilation."""
        assert isinstance(self.server, _Server), "a handler of this server"
        policy, changed = self.server.policy, 0

        def advise(call: Observation) -> float:
            nonlocal changed
            answer = policy(call)
            changed += answer != call.default  # all, where the compiler tells none
            return answer

        beside = Path(str(self.server.server_address)).parent
        with tempfile.TemporaryDirectory(dir=beside) as folder:
            channel = Channel(Path(folder, "channel"), advise)
            channel.open()
            try:
                self.wfile.write(f"{channel.base}\n".encode())
                channel.converse(self.connection.fileno())
                answers: dict[str, object] = {
                    "decisions": len(channel.decisions),
                    "changed": changed,
                }
                if channel.fault is not None:
                    what = f"{type(channel.fault).__name__}: {channel.fault}"
                    answers["fault"] = what
                self.wfile.write(f"{json.dumps(answers)}\n".encode())
            except BrokenPipeError:
                pass  # the compilation was ended
            finally:
                channel.close()


@contextmanager
def policy_process(policy: Path) -> Generator[tuple[Path, "subprocess.Popen[str]"]]:
    """A process that answers with a policy, and the socket where it listens."""
    with tempfile.TemporaryDirectory(prefix="meshwright-policy-") as folder:
        path = Path(folder, "socket")
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(policy), str(path)],
            env={**os.environ, **_ONE_THREAD},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            ready = select.select([process.stdout], [], [], _START_S)[0]
            if not ready or process.stdout.readline() != "listens\n":
                raise PolicyError(
                    f"the process with the policy {policy} does not start"
                )
            yield path, process
        finally:
            process.kill()
            process.communicate()


def main() -> None:
    """Answer with the policy of the first argument at the socket of the second one."""
    policy, path = sys.argv[1:]
    with _Server(path, read_policy(Path(policy))) as server:
        sys.stdout.write("listens\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
