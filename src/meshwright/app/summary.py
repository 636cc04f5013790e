"""A program in three numbers, before anything is partitioned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.predict.roofline.work import program_work
from meshwright.program.analysis.live_bytes import peak_bytes
from meshwright.program.capture import capture


@dataclass(frozen=True, slots=True)
class Summary:
    """What one step of a program is on one device.

    parameters: elements of the inputs under a container called `params`.
    flops: additions, multiplications and their like.
    peak_bytes: alive at once when ops run in order and nothing is fused.
    num_ops: ops of the program, each body of a loop once.
    """

    parameters: int
    flops: int
    peak_bytes: int
    num_ops: int


def summarise(fn: Callable[..., Any], args: Sequence[Any]) -> Summary:
    """Trace `fn(*args)` and count; arguments may be shapes."""
    captured = capture(fn, args)
    program = captured.program
    parameters = sum(
        math.prod(value.shape)
        for path, value in zip(captured.paths, program.inputs, strict=True)
        if "params" in path.split(".")
    )
    reused = {*captured.ties.values(), *captured.donated}
    return Summary(
        parameters,
        program_work(program).flops,
        peak_bytes(program, reused),
        sum(1 for _ in program.walk()),
    )
