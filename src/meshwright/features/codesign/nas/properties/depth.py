"""The depth property: how often a path alternates between linear and nonlinear ops.

A path is a run of linear ops, then one of nonlinear ops, and so on; its depth is the
number of runs. The depth of an output with respect to an input is that of the deepest
path between them. Sums and products of two values count as linear, and so does what moves
values or sums them (alphaNAS). A path that reduces and then repeats the result, such as
that through the variance of a norm, is a statistic and does not count: alphaNAS has norms
as one op, a program has their primitives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait, rule_of
from meshwright.program.rules.factors import is_inexact


class PathKind(NamedTuple):
    """The facts that decide how a path goes on.

    linear: whether its first and its last run are linear.
    reduces, repeats: whether it has an op that reduces dims, or one that repeats values.
    """

    linear: tuple[bool, bool]
    reduces: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Depth:
    """The deepest paths from an input to an output.

    runs: for each kind of path that exists, the most runs of such a path.
    is_empty: whether the output is the input itself, by a path without ops.
    """

    runs: tuple[tuple[PathKind, int], ...] = ()
    is_empty: bool = False

    @property
    def most(self) -> int:
        """The number of runs of the deepest path."""
        return max((count for _, count in self.runs), default=0)


EMPTY = Depth(is_empty=True)
"""The depth of a value with respect to itself."""


def compose(first: Depth, then: Depth) -> Depth:
    """The depth of paths through a value. Law: `depth_of` infers the same for them.

    Two runs of one kind that meet at the value are one run.
    """
    found: dict[PathKind, int] = {}
    if then.is_empty:
        _add(found, first.runs)
    if first.is_empty:
        _add(found, then.runs)
    for one, before in first.runs:
        for other, after in then.runs:
            if not (one.reduces and other.repeats):
                kind = PathKind(
                    (one.linear[0], other.linear[1]),
                    one.reduces or other.reduces,
                    one.repeats or other.repeats,
                )
                is_one_run = one.linear[1] == other.linear[0]
                _add(found, [(kind, before + after - is_one_run)])
    return Depth(tuple(sorted(found.items())), first.is_empty and then.is_empty)


def join(one: Depth | None, other: Depth | None) -> Depth | None:
    """The depth of parallel paths: the deepest of each kind."""
    if one is None or other is None:
        return one or other
    found = dict(one.runs)
    _add(found, other.runs)
    return Depth(tuple(sorted(found.items())), one.is_empty or other.is_empty)


def _add(found: dict[PathKind, int], runs: Sequence[tuple[PathKind, int]]) -> None:
    for kind, count in runs:
        found[kind] = max(found.get(kind, 0), count)


def missing_depth(wanted: int, found: Depth | None) -> float:
    """The share of the wanted runs (0 to 1) that is missing."""
    have = 0 if found is None else found.most
    return max(wanted - have, 0) / wanted if wanted else 0.0


def depth_of(
    program: Program, output: Value, inputs: Sequence[Value]
) -> list[Depth | None]:
    """The depth of `output` with respect to each input; `None`: no path of floats."""
    paths: dict[Atom, Depth] = {output: EMPTY}
    for op in reversed(program.ops):
        onward: Depth | None = None
        for result in op.results:
            if result in paths and is_inexact(result.dtype):
                onward = join(onward, paths[result])
        if onward is None:
            continue
        for i, operand in enumerate(op.operands):
            if isinstance(operand, Value) and is_inexact(operand.dtype):
                joined = join(paths.get(operand), compose(_one_op(op, i), onward))
                assert joined is not None, "one of two paths exists"
                paths[operand] = joined
    return [paths.get(value) for value in inputs]


def _one_op(op: Op, operand: int) -> Depth:
    """The path from one operand of an op to its results."""
    linear = is_linear(op, operand)
    read, made = op.operands[operand], op.results[0]
    repeats = has_trait(op.kind, Trait.REPEATS) or has_trait(op.kind, Trait.ELEMENTWISE)
    kind = PathKind(
        (linear, linear),
        has_trait(op.kind, Trait.REDUCTION),
        repeats and math.prod(read.shape) < math.prod(made.shape),
    )
    return Depth(((kind, 1),))


def is_linear(op: Op, operand: int) -> bool:
    """Whether an op is linear in an operand while its others are fixed."""
    if op.kind == "div":
        return operand == 0
    if has_trait(op.kind, Trait.MOVES) or has_trait(op.kind, Trait.ALIASES_OPERAND):
        return True
    return not op.bodies and any(operand in each for each in rule_of(op).linear)
