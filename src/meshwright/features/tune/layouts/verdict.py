"""The verdict of a compiler or a measurement on a program with chosen layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.errors import PlanError
from meshwright.features.tune.layouts.constrain import Layouts
from meshwright.features.tune.layouts.kernel_costs import Example
from meshwright.plain import Frame, plain


@dataclass(frozen=True, slots=True)
class Verdict:
    """The cost of a program with chosen layouts, and other figures for people to read.

    cost: cycles, or CPU time divided by that with default layouts; infinite if the
        program could not be compiled.
    spread: half of the interquartile range of measurements, divided by their median; 0
        for an estimate.
    bytes_accessed: XLA's count, in which loop bodies count once.
    async_copies: number of asynchronous copies and slices in one execution.
    unestimated_bytes: bytes written by instructions without an estimate of cycles.
    temp_bytes: bytes of temporary memory.
    in_layouts, out_layouts: layouts of arguments and results, dims major to minor.
    error: the reason why there is no cost; "" if there is one.
    examples: kernels with the compiler's estimates, from which the cost of other
        programs is guessed.
    """

    cost: float
    spread: float = 0.0
    bytes_accessed: float | None = None
    async_copies: int = 0
    unestimated_bytes: int = 0
    temp_bytes: int = 0
    in_layouts: tuple[tuple[int, ...] | None, ...] = ()
    out_layouts: tuple[tuple[int, ...] | None, ...] = ()
    error: str = ""
    examples: tuple[Example, ...] = ()


def _with_cost(entry: Any, path: str) -> Any:
    """The fields of a verdict, in which the cost `None` stands for infinity."""
    del path
    return entry | {"cost": math.inf} if entry["cost"] is None else entry


VERDICTS = Frame(
    PlanError,
    "this is no verdict",
    prepare={Verdict: _with_cost},
    positional=(Example,),
)
"""JSON texts of verdicts."""


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain data, in which the cost `None` stands for infinity."""
    cost = verdict.cost if math.isfinite(verdict.cost) else None
    return plain(verdict, VERDICTS.positional) | {"cost": cost}


def failed(reason: str) -> Verdict:
    """The verdict on a program that does not compile."""
    return Verdict(math.inf, error=reason)


@dataclass(frozen=True, slots=True)
class Question:
    """A program with chosen layouts, whose cost a judge is asked for.

    layouts: layouts by value, which become constraints in the program.
    inputs: chosen layouts of arguments, by position.
    is_auto: whether the compiler chooses the layouts of other arguments and of results;
        otherwise they are the default.
    """

    layouts: Layouts
    inputs: Mapping[int, tuple[int, ...]]
    is_auto: bool
