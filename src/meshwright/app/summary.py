"""The size of a program before it is partitioned: parameters, operations, memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.predict.roofline.work import program_work
from meshwright.program.analysis.live_ranges import peak_bytes
from meshwright.program.capture import capture


@dataclass(frozen=True, slots=True)
class Summary:
    """The size of one step of a program on one device.

    parameters: elements of the inputs under a container called `params`.
    flops: arithmetic operations.
    peak_bytes: peak of the live values if ops run in order and nothing is fused.
    num_ops: ops of the program; the body of a loop counts once.
    """

    parameters: int
    flops: int
    peak_bytes: int
    num_ops: int


def summarise(fn: Callable[..., Any], args: Sequence[Any]) -> Summary:
    """The size of `fn(*args)`; the arguments may be `ShapeDtypeStruct`s."""
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
