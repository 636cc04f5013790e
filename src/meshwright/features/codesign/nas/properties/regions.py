"""Which positions of a program's values a region of its output depends on.

A region is a product of positions along each dim. It goes from an op's results to its
operands by the factor rule: a factor that both have keeps its positions, one that only
the operand has is needed whole, and so is a dim without a letter. `windows.py` has the
ops whose rule shifts positions. Values that are no floats carry no dependence: what is
meant is that which a derivative sees, up to zeros that depend on the numbers.

Law: a region has at least the positions on which the derivative depends; for programs of
elementwise ops, products, reductions, windows and reshapes it has no others.
"""

from collections.abc import Mapping

import numpy as np

from meshwright.features.codesign.nas.properties.windows import (
    POSITIONS,
    Mask,
    Region,
)
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import rule_of
from meshwright.program.rules.factors import is_inexact
from meshwright.program.rules.rule import Dims, FactorRule


def whole_region(shape: tuple[int, ...]) -> Region:
    """Every position of a value."""
    return tuple(np.ones(n, bool) for n in shape)


def union(one: Region | None, other: Region) -> Region:
    """The smallest region that holds both."""
    if one is None:
        return other
    return tuple(a | b for a, b in zip(one, other, strict=True))


def needed_regions(
    program: Program, output: Value, region: Region
) -> Mapping[Atom, Region]:
    """The region of each float value that `region` of `output` depends on."""
    needed: dict[Atom, Region] = {output: region}
    for op in reversed(program.ops):
        wanted = [needed.get(result) for result in op.results]
        if all(each is None for each in wanted):
            continue
        for operand, found in zip(
            op.operands, operand_regions(op, wanted), strict=True
        ):
            if found is not None and isinstance(operand, Value):
                needed[operand] = union(needed.get(operand), found)
    return needed


def operand_regions(op: Op, wanted: list[Region | None]) -> list[Region | None]:
    """The region of each operand, from those of the results; `None`: no dependence."""
    positions = POSITIONS.get(op.kind)
    found: Mapping[int, Region]
    if op.bodies:
        found = {i: whole_region(a.shape) for i, a in enumerate(op.operands)}
    elif positions is not None and wanted[0] is not None:
        found = positions(op, wanted[0])
    else:
        found = _by_factors(op, rule_of(op), wanted)
    is_float = any(
        is_inexact(r.dtype)
        for r, w in zip(op.results, wanted, strict=True)
        if w is not None
    )
    return [
        found.get(i)
        if is_float and is_inexact(operand.dtype) and _is_nonempty(found.get(i))
        else None
        for i, operand in enumerate(op.operands)
    ]


def _is_nonempty(region: Region | None) -> bool:
    """Whether a region has any position; a window may lie in padding alone."""
    return all(mask.any() for mask in region or ())


def _by_factors(
    op: Op, rule: FactorRule, wanted: list[Region | None]
) -> dict[int, Region]:
    reached: dict[int, Mask] = {}
    for dims, region in zip(rule.results, wanted, strict=True):
        for factors, mask in zip(dims, region or (), strict=region is not None):
            grid = mask.reshape([rule.sizes[f] for f in factors]) if factors else mask
            for i, factor in enumerate(factors):
                others = tuple(j for j in range(len(factors)) if j != i)
                seen = grid.any(axis=others)
                reached[factor] = reached[factor] | seen if factor in reached else seen
    for factor in rule.special:
        reached.pop(factor, None)
    return {
        i: _region(operand.shape, dims, rule, reached)
        for i, (operand, dims) in enumerate(
            zip(op.operands, rule.operands, strict=True)
        )
    }


def _region(
    shape: tuple[int, ...], dims: Dims, rule: FactorRule, reached: Mapping[int, Mask]
) -> Region:
    masks: list[Mask] = []
    for n, factors in zip(shape, dims, strict=True):
        mask = np.ones(1, bool)
        for factor in factors:
            part = reached.get(factor, np.ones(rule.sizes[factor], bool))
            mask = np.outer(mask, part).ravel()
        masks.append(mask if factors else np.ones(n, bool))
    return tuple(masks)
