"""The narrowest float dtype that each output is computed from.

It bounds the precision of the output.
"""

from collections.abc import Callable, Mapping, Sequence

from meshwright.program.ir import Atom, Op, Program, Value


def narrowest_floats[T: (int, float)](
    program: Program, coarseness: Callable[[str], T]
) -> tuple[T, ...]:
    """For each output, the largest `coarseness` of the dtypes that it is computed from.

    coarseness: function that gives a number for a dtype, larger for dtypes of fewer
        bits.
    """
    inputs = [coarseness(value.dtype) for value in program.inputs]
    return tuple(_outputs(program, inputs, coarseness))


def _outputs[T: (int, float)](
    program: Program, inputs: Sequence[T], coarseness: Callable[[str], T]
) -> list[T]:
    """The largest coarseness that each output depends on, given that of each input."""
    found: dict[Atom, T] = dict(zip(program.inputs, inputs, strict=True))
    for value in program.constants:
        found[value] = coarseness(value.dtype)
    for op in program.ops:
        behind = [_of(atom, found, coarseness) for atom in op.operands]
        results = (
            _region(op, behind, coarseness)
            if op.bodies
            else [max(behind, default=coarseness("bool"))] * len(op.results)
        )
        for value, coarsest in zip(op.results, results, strict=True):
            found[value] = max(coarsest, coarseness(value.dtype))
    return [_of(atom, found, coarseness) for atom in program.outputs]


def _of[T: (int, float)](
    atom: Atom, found: Mapping[Atom, T], coarseness: Callable[[str], T]
) -> T:
    return found[atom] if isinstance(atom, Value) else coarseness(atom.dtype)


def _region[T: (int, float)](
    op: Op, behind: Sequence[T], coarseness: Callable[[str], T]
) -> list[T]:
    """The largest coarseness that each result of a loop, branch or remat depends on.

    behind: largest coarseness that each operand depends on.
    """
    least = coarseness("bool")
    inputs = [[least] * len(body.inputs) for body in op.bodies]
    while True:
        outputs = [
            _outputs(body, given, coarseness)
            for body, given in zip(op.bodies, inputs, strict=True)
        ]
        changed = False
        results = [least] * len(op.results)
        for wire in op.wires:
            ends = [outputs[b][i] for b, i in wire.outputs]
            start = [] if wire.operand is None else [behind[wire.operand]]
            coarsest = max([*start, *ends], default=least)
            for b, i in wire.inputs:
                changed |= coarsest > inputs[b][i]
                inputs[b][i] = max(coarsest, inputs[b][i])
            if wire.result is not None:
                results[wire.result] = max(coarsest, results[wire.result])
        if not changed:
            return results
