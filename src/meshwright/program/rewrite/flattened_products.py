"""Rewrite of inner products of flattened arrays, as products of the arrays themselves.

`jnp.vdot(x, y)` flattens its operands, and a flattened array can be sharded only along
the first of the dims that were flattened: a weight sharded along its last dim would be
gathered. The product over all dims needs only an all-reduce of one number.
"""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.program.ir import Atom, Op, Program, Value

_VECTORS = (((0,), (0,)), ((), ()))
"""Dimension numbers of the inner product of two vectors: contracted dims, batch dims."""


def unflatten_products(program: Program) -> Program:
    """The program with inner products of flattened arrays as products over all dims.

    Law: inputs and outputs stay as they are, and the result computes the same sums. The
    reshapes stay in the program; dead code elimination removes those without a reader.
    """
    flattened: dict[Atom, Atom] = {}
    ops: list[Op] = []
    for op in program.ops:
        if op.kind == "reshape" and op.params.get("dimensions") is None:
            flattened[op.results[0]] = op.operands[0]
        ops.append(_unflattened(op, flattened))
    if all(new is old for new, old in zip(ops, program.ops, strict=True)):
        return program
    return replace(program, ops=tuple(ops))


def _unflattened(op: Op, flattened: Mapping[Atom, Atom]) -> Op:
    if op.bodies:
        bodies = tuple(map(unflatten_products, op.bodies))
        is_same = all(new is old for new, old in zip(bodies, op.bodies, strict=True))
        return op if is_same else replace(op, bodies=bodies)
    if op.kind != "dot_general" or op.params["dimension_numbers"] != _VECTORS:
        return op
    left, right = (flattened.get(operand) for operand in op.operands)
    if not isinstance(left, Value) or not isinstance(right, Value):
        return op
    if left.shape != right.shape:
        return op
    dims = tuple(range(len(left.shape)))
    params = {**op.params, "dimension_numbers": ((dims, dims), ((), ()))}
    return replace(op, operands=(left, right), params=params)
