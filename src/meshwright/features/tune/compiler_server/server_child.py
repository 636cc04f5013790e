"""Compiles, and on CPU measures, one exported step after another in one process.

`server.py` starts it and writes one request in JSON per line; each is answered by one line.
What the compiler itself prints goes to stderr.
"""

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import jax
import numpy as np

from meshwright.run.compilers.compile_child import compile_request, figures

_compiled: dict[str, Any] = {}
"""Compiled steps by the key of their request, kept to be measured."""


def compile_kept(request: dict[str, Any]) -> dict[str, Any]:
    """Figures of a step, and the layouts of its arguments and results."""
    compiled, compile_s = compile_request(request)
    if request["platform"] == "cpu":
        _compiled[request["key"]] = compiled
    found = figures(request, compiled, compile_s)
    costs = compiled.cost_analysis() or {}
    return {
        **found,
        "optimized": _dumped(request) if request["dump"] else "",
        "bytes_accessed": costs.get("bytes accessed"),
        "in_layouts": _layouts(compiled.input_formats[0]),
        "out_layouts": _layouts(compiled.output_formats),
    }


_NO_CODE = "meshwright_no_code"
"""A custom call that no compiler knows; it ends a compilation before code is generated."""


def screen(request: dict[str, Any]) -> dict[str, Any]:
    """The optimised program of a step, for which no code is generated.

    It is what the compiler dumps after all passes over HLO.
    """
    try:
        compile_request(request, last=_NO_CODE)
    except jax.errors.JaxRuntimeError as error:
        if _NO_CODE not in str(error):
            raise
    optimized = _dumped(request)
    if not optimized:
        raise RuntimeError("the compiler wrote no optimised program")
    return {"optimized": optimized}


def _dumped(request: dict[str, Any]) -> str:
    """The text of the largest optimised program in the dump, which is then emptied."""
    folder, pattern = Path(request["dump"]), request["pattern"]
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_size)
    text = found[-1].read_text(encoding="utf-8") if found else ""
    for path in [*folder.iterdir()]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return text


def _layouts(formats: Any) -> list[list[int] | None]:
    """Dims, major to minor, of each format; `None` for an unused argument."""
    return [
        None if each.layout is None else list(each.layout.major_to_minor)
        for each in formats
    ]


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """CPU seconds of steps that were compiled: one list per step, one entry per pass.

    Steps run in shuffled order in each pass, so that all see the same disturbances.
    """
    rng = np.random.default_rng(request["seed"])
    steps = [_compiled[key] for key in request["keys"]]
    inputs = [_inputs(step) for step in steps]
    seconds: list[list[float]] = [[] for _ in steps]
    for step, given in zip(steps, inputs, strict=True):
        jax.block_until_ready(step(*given))
    for _ in range(request["passes"]):
        for index in rng.permutation(len(steps)):
            seconds[index].append(
                _cpu_s(steps[index], inputs[index], request["least_s"])
            )
    return {"seconds": seconds}


def _cpu_s(step: Callable[..., Any], inputs: list[Any], least_s: float) -> float:
    """Mean CPU seconds of one call, over calls that fill at least `least_s` seconds."""
    start_s = time.process_time()
    calls = 0
    while calls == 0 or time.process_time() - start_s < least_s:
        jax.block_until_ready(step(*inputs))
        calls += 1
    return (time.process_time() - start_s) / calls


def _inputs(step: Any) -> list[Any]:
    """Numbers for the arguments of a compiled step, equal for every layout."""
    rng = np.random.default_rng(0)
    arrays: list[Any] = []
    avals = jax.tree.leaves(step.args_info)
    for aval, form in zip(avals, step.input_formats[0], strict=True):
        if np.issubdtype(aval.dtype, np.integer):
            values = np.zeros(aval.shape, aval.dtype)
        else:
            values = (0.1 * rng.standard_normal(aval.shape)).astype(aval.dtype)
        arrays.append(jax.device_put(values, form))
    return arrays


def _read(lines: SimpleQueue[str]) -> None:
    """Queue the lines of stdin, which ends with the process that writes them."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


_ACTIONS = {
    "compile": compile_kept,
    "screen": screen,
    "measure": measure,
}


def serve() -> None:
    """Answer requests until there are no more.

    The process ends with the one that started it, in the middle of a compilation, too.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        line = lines.get()
        request = json.loads(line)
        try:
            answer = _ACTIONS[request["do"]](request)
        except Exception as error:  # noqa: BLE001  the parent decides what it means
            answer = {"error": f"{type(error).__name__}: {error}"[:1000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
