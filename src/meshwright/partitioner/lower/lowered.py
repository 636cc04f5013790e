"""The device program that lowering returns, and the options that lowering takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from meshwright.machine import Mesh
from meshwright.program.ir import Op, Program, Sharding


class Gather(Enum):
    """How often a value that several ops need whole is gathered."""

    AT_USE = "at_use"  # anew for each op, so that it need not be kept (PartIR)
    SHARED = "shared"  # once, then kept


type Workaround = Callable[[Op], Op]
"""Rewrites one loop, branch or rematted region of a device program for a compiler.

Called once for each, inner ones first; the result computes the same.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """Why a collective is there: the node that reads or makes the value, and the value.

    value: its number in the graph. axes: those that move. is_read: the collective
    prepares an operand of the node; otherwise it completes a result.
    """

    node: int
    value: int
    axes: tuple[str, ...]
    is_read: bool


@dataclass(frozen=True, eq=False)
class Lowered:
    """A device program, with the shardings of its inputs and outputs.

    origins: by collective op of the program, nested ones included.
    """

    program: Program
    mesh: Mesh
    inputs: tuple[Sharding, ...]
    outputs: tuple[Sharding, ...]
    origins: Mapping[Op, Origin] = field(default_factory=dict)
