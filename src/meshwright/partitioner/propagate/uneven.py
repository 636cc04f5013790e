"""Sharded dims of which ops move parts that do not correspond to those of devices."""

import math
from collections.abc import Iterator, Mapping, Sequence

from meshwright.partitioner.propagate.graph import Graph
from meshwright.partitioner.propagate.state import State
from meshwright.program.ir import Op, Program, Value
from meshwright.program.rewrite.even_dims import EvenDims
from meshwright.program.rewrite.known_positions import positions_inside, positions_of
from meshwright.program.rewrite.window_moves import MovedDim, moved_dims


def moving_ops(graph: Graph) -> Mapping[Op, Sequence[MovedDim]]:
    """The ops that move parts of dims, and these dims."""
    return dict(_moving(graph.program, {}))


def _moving(
    program: Program, known: dict[Value, Sequence[int]]
) -> Iterator[tuple[Op, Sequence[MovedDim]]]:
    for op in program.ops:
        known.update(positions_of(op, known))
        if moved := moved_dims(op, known):
            yield op, moved
        for i, body in enumerate(op.bodies):
            yield from _moving(body, positions_inside(op, i, known))


def even_dims_of(
    state: State, moving: Mapping[Op, Sequence[MovedDim]]
) -> EvenDims | None:
    """The rewrite for ops whose operands are sharded along a moved dim; `None` if none is.

    These are ops that are not sharded along that axis, or that move nearly all of the dim.
    All operands of an op that joins several must be sharded so, but small ones.
    """
    graph, found, parts = state.graph, set[Op](), 1
    for op, moved in moving.items():
        taken = state.factor_of[graph.op_node[op].index]
        axes = set(state.size)
        for each in moved:
            number = graph.number.get(each.value)
            if each.is_small or number is None:
                continue
            axes &= {
                axis
                for axis in state.size
                if state.dim_on(number, axis) == each.dim
                and (each.is_near or axis not in taken)
            }
        if axes and not all(each.is_small for each in moved):
            found.add(op)
            parts = math.lcm(parts, math.prod(state.size[axis] for axis in axes))
    walked = enumerate(graph.program.walk())
    stuck = tuple(i for i, op in walked if op in found)
    return EvenDims(stuck, parts) if stuck else None
