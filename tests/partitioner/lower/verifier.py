"""The verifier of device programs; tests run it after lowering."""

from __future__ import annotations

import math
from collections.abc import Callable

from meshwright.machine import Mesh
from meshwright.partitioner.lower import Lowered
from meshwright.partitioner.lower.reshard import local_shape
from meshwright.program.ir import Literal, Op, Program, Sharding
from tests.program.ir.verifier import show_ops, verify

Shape = tuple[int, ...]


def verify_lowered(lowered: Lowered, source: Program) -> None:
    """Assert that `lowered` is a well-formed device program of `source`.

    Its structure is valid (`verify`). Inputs and outputs have the local shapes of their
    shardings, and no output is partial. Each collective names axes of the mesh and changes
    shapes as its kind must.
    """
    program = lowered.program
    verify(program)
    for what, local, whole, shardings in (
        ("input", program.inputs, source.inputs, lowered.inputs),
        ("output", program.outputs, source.outputs, lowered.outputs),
    ):
        for i, (a, b, s) in enumerate(zip(local, whole, shardings, strict=True)):
            assert not s.partial, f"{what} {i} is left partial: {s}"
            wanted = (local_shape(b.shape, s, lowered.mesh), b.dtype)
            assert (a.shape, a.dtype) == wanted, (
                f"{what} {i} is {a}, wanted {wanted} by {s} of {b}"
            )
            _check_divides(b.shape, s, lowered.mesh, f"{what} {i}")
    for op in program.walk():
        if op.kind in _RESULTS:
            _check_collective(op, lowered.mesh)


def _check_divides(shape: Shape, sharding: Sharding, mesh: Mesh, what: str) -> None:
    for extent, axes in zip(shape, sharding.dims, strict=True):
        assert extent % mesh.size(axes) == 0, (
            f"{what}: {sharding} does not divide {shape}"
        )


def _check_collective(op: Op, mesh: Mesh) -> None:
    axes = op.params["axes"]
    assert isinstance(axes, tuple), f"{_shown(op)}: no axes"
    assert axes, f"{_shown(op)}: no axes"
    assert set(axes) <= set(mesh.axes), f"{_shown(op)}: not the axes of {mesh}"
    assert len(set(axes)) == len(axes), f"{_shown(op)}: an axis twice"
    (operand,), (result,) = op.operands, op.results
    assert not isinstance(operand, Literal), f"{_shown(op)}: of a literal"
    wanted = _RESULTS[op.kind](op, operand.shape, mesh.size(axes))
    assert (result.shape, result.dtype) == (wanted, operand.dtype), (
        f"{_shown(op)}: wanted shape {wanted}"
    )


def _shown(op: Op) -> str:
    return show_ops([op])[0]


def _dim(op: Op, name: str = "dim") -> int:
    dim = op.params[name]
    assert isinstance(dim, int), f"{_shown(op)}: {name} is {dim!r}"
    return dim


def _grown(shape: Shape, dim: int, parts: int) -> Shape:
    return shape[:dim] + (shape[dim] * parts,) + shape[dim + 1 :]


def _shrunk(shape: Shape, dim: int, parts: int) -> Shape:
    assert shape[dim] % parts == 0, f"{parts} parts do not divide dim {dim} of {shape}"
    return shape[:dim] + (shape[dim] // parts,) + shape[dim + 1 :]


def _permuted(op: Op, shape: Shape, parts: int) -> Shape:
    pairs = op.params["pairs"]
    assert isinstance(pairs, tuple), f"{_shown(op)}: no pairs"
    ends = list(zip(*pairs, strict=True)) or [(), ()]
    assert all(len(set(end)) == len(end) for end in ends), f"{_shown(op)}: twice"
    positions = set(range(parts))
    assert all(set(end) <= positions for end in ends), f"{_shown(op)}: out of range"
    return shape


def _exchanged(op: Op, shape: Shape, parts: int) -> Shape:
    assert _dim(op, "gather") != _dim(op, "split"), f"{_shown(op)}: onto itself"
    shape = _shrunk(shape, _dim(op, "split"), parts)
    moved = _grown(shape, _dim(op, "gather"), parts)
    assert math.prod(moved) == math.prod(shape) * parts
    return moved


def _pieces(op: Op) -> int:
    """The number of pieces of a chunk, of which an all_slice takes one."""
    _, pieces = op.params.get("piece", (0, 1))  # pyright: ignore[reportGeneralTypeIssues]
    return pieces


_RESULTS: dict[str, Callable[[Op, Shape, int], Shape]] = {
    "all_slice": lambda op, shape, n: _shrunk(shape, _dim(op), n * _pieces(op)),
    "all_gather": lambda op, shape, n: _grown(shape, _dim(op), n),
    "all_reduce": lambda op, shape, n: shape,
    "reduce_scatter": lambda op, shape, n: _shrunk(shape, _dim(op), n),
    "all_to_all": _exchanged,
    "permute": _permuted,
}
"""By kind of collective, the result's shape from the operand's shape, over n devices."""
