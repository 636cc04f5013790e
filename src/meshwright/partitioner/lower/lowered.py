"""The device program that lowering returns, and counts of its collectives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import is_

from meshwright.machine import Mesh
from meshwright.program.analysis.executions import num_iterations, op_executions
from meshwright.program.ir import Op, Program, Sharding, Value
from meshwright.program.ops import COLLECTIVES


class Gather(Enum):
    """The number of gathers of a sharded value that several ops need unsharded."""

    AT_USE = "at_use"  # anew for each op, so that it need not be kept (PartIR)
    SHARED = "shared"  # once, then kept


type Workaround = Callable[[Op], Op]
"""Rewrites one loop, branch or rematted region of a device program for a compiler.

It is called once for each region, inner ones first; the result computes the same."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The reason for a collective: a value, and the node that reads or computes it.

    node, value: their numbers in the graph. axes: the mesh axes of the collective.
    is_read: whether it prepares an operand of the node, or else completes a result.
    num_values: number of values that it reduces together; `value` is the first.
    others: numbers of the other values, if they are known.
    is_overlapped: whether it is a permute of a loop that replaces the collective.
    is_ahead: whether it runs one iteration of a loop ahead of the ops that read it.
    """

    node: int
    value: int
    axes: tuple[str, ...]
    is_read: bool
    num_values: int = 1
    is_overlapped: bool = False
    is_ahead: bool = False
    others: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Lowered:
    """A device program, with the shardings of its inputs and outputs.

    origins: for each collective its reason, also in nested programs.
    stored: the sharding in which each global value is stored, also in bodies.
    lowered_from: for each op of the device program, the op of the given program for
        which it was written. Rewrites after lowering may add ops that are not listed.
    """

    program: Program
    mesh: Mesh
    inputs: tuple[Sharding, ...]
    outputs: tuple[Sharding, ...]
    origins: Mapping[Op, Origin] = field(default_factory=dict)
    stored: Mapping[Value, Sharding] = field(default_factory=dict)
    lowered_from: Mapping[Op, Op] = field(default_factory=dict)


def work_around(program: Program, workarounds: Sequence[Workaround]) -> Program:
    """The program with workarounds applied to loops and branches, inner first."""
    if not workarounds or not any(op.bodies for op in program.ops):
        return program
    ops: list[Op] = []
    for op in program.ops:
        if op.bodies:
            op = with_bodies(op, lambda body: work_around(body, workarounds))
            for workaround in workarounds:
                op = workaround(op)
        ops.append(op)
    return with_ops(program, ops)


def with_bodies(op: Op, rewrite_fn: Callable[[Program], Program]) -> Op:
    """The op with rewritten bodies; the same op if no body changes."""
    bodies = tuple(map(rewrite_fn, op.bodies))
    is_same = all(a is b for a, b in zip(bodies, op.bodies, strict=True))
    return op if is_same else replace(op, bodies=bodies)


def with_ops(program: Program, ops: Sequence[Op]) -> Program:
    """The program with other ops; the same program if they are its own."""
    is_same = len(ops) == len(program.ops) and all(map(is_, ops, program.ops))
    return program if is_same else replace(program, ops=tuple(ops))


def executions(program: Program) -> Iterator[tuple[Op, int]]:
    """Each collective with its number of executions in one run of the program."""
    return (pair for pair in op_executions(program) if pair[0].kind in COLLECTIVES)


def count_collectives(program: Program) -> dict[str, int]:
    """Executions of collectives in one run, by kind.

    A `cond` counts as its busiest branch.
    """
    counts: dict[str, int] = dict.fromkeys(COLLECTIVES, 0)
    for op in program.ops:
        if op.kind in COLLECTIVES:
            counts[op.kind] += 1
        if op.bodies:
            inner = [count_collectives(body) for body in op.bodies]
            join = max if op.kind == "cond" else sum
            for kind in counts:
                counts[kind] += num_iterations(op) * join([c[kind] for c in inner])
    return counts
