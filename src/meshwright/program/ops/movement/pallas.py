"""The factor rule of Pallas kernels: grid dims with independent steps can be split.

Index maps say which block of each operand and result a step of the grid sees. A dim of
the grid can be split if the kernel does not read its `program_id`, if every result has
a separate block for each step along it, and if every operand either has one too or does
not depend on it. A device that runs some of the steps then needs exactly the blocks of
these steps, and may number the steps from 0.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from meshwright.program.ir import Op
from meshwright.program.rules.factors import RuleFactors, no_dims
from meshwright.program.rules.pallas_work import KERNEL_PARAM, kernel_of
from meshwright.program.rules.registry import NO_WORK, OpWork, Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, Shape, opaque_rule

_READS_STEP = frozenset({"num_programs", "program_id"})
_IN_ORDER = ("prng_", "dma_", "semaphore_")
"""Prefixes of primitives whose effects last from one grid step to the next."""


def _work(op: Op) -> OpWork:
    kernel = kernel_of(op)
    return NO_WORK if kernel is None else kernel.work


@rule("pallas_call", traits=(Trait.STANDALONE,), work=_work)
def pallas(op: Op) -> FactorRule:
    """The factor rule of `pallas_call`: `(gb)k->(gb)k` for each independent grid dim g.

    Letters are dims that can be sharded; (gb) is an array dim of g blocks of b rows, of
    which only g can be split.
    """
    mapping = op.params["grid_mapping"]
    unblocked = op.operands[: len(op.operands) - mapping.num_inputs]
    free = [dim for dim in range(len(mapping.grid)) if _is_independent(op, dim)]
    if not free:
        return opaque_rule(
            op, "the steps of its grid depend on each other along every dim"
        )
    factors = RuleFactors()
    letters = {dim: factors.one(mapping.grid[dim]) for dim in free}
    named: list[Dims] = []
    for block in mapping.block_mappings:
        dims: list[tuple[int, ...]] = []
        for size, grid_dim in zip(_sizes(block), _grid_dims(block), strict=True):
            letter = letters.get(-1 if grid_dim is None else grid_dim, ())
            dims.append((*letter, *factors.indivisible(size)) if letter else ())
        named.append(tuple(dims))
    return factors.rule(
        [*map(no_dims, unblocked), *named[: mapping.num_inputs]],
        named[mapping.num_inputs :],
        local_params=_local_params,
    )


def _local_params(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """Parameters of the `pallas_call` that runs one device's share of grid steps."""
    mapping = op.params["grid_mapping"]
    shapes = (*operands[len(operands) - mapping.num_inputs :], *results)
    grid = list(mapping.grid)
    for block, shape in zip(mapping.block_mappings, shapes, strict=True):
        for grid_dim, size, now, was in zip(
            _grid_dims(block), _sizes(block), shape, block.array_aval.shape, strict=True
        ):
            if grid_dim is not None and now != was:
                grid[grid_dim] = now // size
    parts = math.prod(mapping.grid) // math.prod(grid)
    blocks = tuple(
        block.replace(array_aval=block.array_aval.update(shape=shape))
        for block, shape in zip(mapping.block_mappings, shapes, strict=True)
    )
    avals = (
        aval.update(shape=shape)
        for aval, shape in zip(op.params["out_avals"], results, strict=True)
    )
    local = {
        **op.params,
        "grid_mapping": mapping.replace(grid=tuple(grid), block_mappings=blocks),
        "out_avals": tuple(avals),
    }
    kernel = kernel_of(op)
    if kernel is not None:
        local[KERNEL_PARAM] = kernel.per_device(parts)
    stated = op.params["cost_estimate"]
    if stated is not None:
        local["cost_estimate"] = replace(
            stated,
            flops=stated.flops // parts,
            transcendentals=stated.transcendentals // parts,
            bytes_accessed=stated.bytes_accessed // parts,
        )
    return local


def _is_independent(op: Op, dim: int) -> bool:
    """Whether the steps along a dim of the grid are independent of each other."""
    mapping = op.params["grid_mapping"]
    if (
        mapping.num_dynamic_grid_bounds
        or op.params["mesh"] is not None
        or op.has_effect
    ):
        return False
    numbered = [d for d in range(len(mapping.grid)) if d not in mapping.vmapped_dims]
    for eqn in _equations(op.params["jaxpr"]):
        name = eqn.primitive.name
        if name.startswith(_IN_ORDER):
            return False
        if name in _READS_STEP and numbered[eqn.params["axis"]] == dim:
            return False
    blocks = mapping.block_mappings
    if op.params["input_output_aliases"] and not all(
        _has_blocks(b, dim) for b in blocks
    ):
        return False
    return all(
        _has_blocks(block, dim) for block in blocks[mapping.num_inputs :]
    ) and all(_has_blocks(block, dim) or not _depends(block, dim) for block in blocks)


def _has_blocks(block: Any, dim: int) -> bool:
    """Whether each step along grid dim `dim` sees the next block of an array.

    The blocks must lie one after another along one dim of the array and fill it.
    """
    places = _grid_dims(block)
    if places.count(dim) != 1 or _depends(block, dim, places.index(dim)):
        return False
    size = _sizes(block)[places.index(dim)]
    return size > 0 and block.array_aval.shape[places.index(dim)] % size == 0


def _grid_dims(block: Any) -> list[int | None]:
    """The grid dim that indexes the blocks along each array dim, or `None`."""
    jaxpr = block.index_map_jaxpr.jaxpr
    numbers = {var: index for index, var in enumerate(jaxpr.invars)}
    return [
        None if hasattr(atom, "val") or not size else numbers.get(atom)
        for atom, size in zip(jaxpr.outvars, _sizes(block), strict=True)
    ]


def _depends(block: Any, dim: int, besides: int = -1) -> bool:
    """Whether grid dim `dim` affects a block's position along any array dim.

    The array dim `besides` is left out.
    """
    jaxpr = block.index_map_jaxpr.jaxpr
    reached = {jaxpr.invars[dim]}
    for eqn in jaxpr.eqns:
        if any(not hasattr(a, "val") and a in reached for a in eqn.invars):
            reached.update(eqn.outvars)
    return any(
        not hasattr(atom, "val") and atom in reached
        for index, atom in enumerate(jaxpr.outvars)
        if index != besides
    )


def _sizes(block: Any) -> list[int]:
    """Extents of a block, one per array dim; 0 for dims not indexed by whole blocks."""
    sizes = {"Blocked": lambda dim: dim.block_size, "Squeezed": lambda dim: 1}
    return [
        sizes.get(type(dim).__name__, lambda dim: 0)(dim) for dim in block.block_shape
    ]


def _equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr and of the jaxprs inside it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if hasattr(inner, "eqns"):
                    yield from _equations(inner)
