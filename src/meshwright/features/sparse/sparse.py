"""`mw.sparse`: a function for dense arrays, compiled with a format for each operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
import scipy.sparse as scipy_sparse
from jax.core import Tracer

from meshwright.app.output.notices import warn
from meshwright.errors import SparseError
from meshwright.features.sparse.density import DenseLimit, dense_limits
from meshwright.features.sparse.jit import CompiledModule, compile_module
from meshwright.features.sparse.linalg import LinalgModule, to_linalg
from meshwright.features.sparse.mlir.emitter import Tensor
from meshwright.features.sparse.mlir.formats import Format, parse_format
from meshwright.features.sparse.storage import checked, in_format, pack, unpack
from meshwright.partitioner.structure.workspace import matches
from meshwright.program.capture import Captured, capture


def sparse(fn: Callable[..., Any], formats: Mapping[str, str] | None = None) -> Sparse:
    """The function with sparse storage of the operands and results in `formats`.

    fn: a function of pytrees, written for dense arrays: products, elementwise ops,
        reductions, broadcasts, reshapes and transpositions.
    formats: maps patterns to formats. A pattern matches paths of arguments
        ("params.**.kernel") and of results ("out", "out.0"). A format is "csr", "csc",
        "coo", "bsr:4x4" (with the size of blocks) or "dense". Everything that no
        pattern matches is dense.
    An argument in a sparse format may be a SciPy matrix in any format, or a dense
    array, which is compressed at each call. A result in a sparse format is a SciPy
    array; all other results are NumPy arrays. Needs the extra `sparse`. Raises
    `SparseError`, with the source line, for an op that cannot be expressed.
    """
    if not callable(fn):
        raise SparseError(f"sparse wants a function, got {fn!r:.60}")
    if formats is not None and not isinstance(formats, Mapping):
        raise SparseError(
            f"formats are {formats!r:.60}; wanted a dict from patterns of paths to "
            "formats, as in {'params.**.kernel': 'csr'}"
        )
    parsed = {pattern: parse_format(text) for pattern, text in (formats or {}).items()}
    return Sparse(fn, parsed)


@dataclass(frozen=True, eq=False)
class Sparse:
    """A function with storage formats of its arguments and results.

    It is compiled once for each combination of argument shapes and dtypes.

    formats: by pattern over paths; `None` stands for dense.
    """

    fn: Callable[..., Any]
    formats: Mapping[str, Format | None]
    _known: dict[Any, SparseProgram] = field(
        default_factory=dict[Any, "SparseProgram"], repr=False
    )

    def lower(self, *args: Any) -> SparseProgram:
        """The function's MLIR module for arguments of these shapes, not yet compiled.

        args: arrays, SciPy matrices, or `jax.ShapeDtypeStruct`s.
        """
        return self._program(*jax.tree.flatten(args))

    def __call__(self, *args: Any) -> Any:
        """The function's result, computed by sparse code."""
        leaves, tree = jax.tree.flatten(args)
        return self._program(leaves, tree).run(leaves)

    def _program(self, leaves: list[Any], tree: Any) -> SparseProgram:
        kinds = [(a.shape, a.dtype) for a in map(_typed, leaves)]
        key = tree, *kinds
        found = self._known.get(key)
        if found is None:
            types = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in kinds]
            captured = capture(self.fn, jax.tree.unflatten(tree, types))
            found = self._known[key] = _lowered(captured, self.formats)
        return found


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The path, shape, NumPy dtype and storage format of an input or output."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    format: Format | None


@dataclass(eq=False)
class SparseProgram:
    """The MLIR module of a function, with the types of its inputs and outputs.

    out_tree: the pytree structure of the function's result.
    limits: of inputs that nobody has been told about yet.
    """

    module: LinalgModule
    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    out_tree: Any
    limits: list[DenseLimit] = field(init=False)

    def __post_init__(self) -> None:
        kinds = [(t.path, t.shape, t.format) for t in self.inputs]
        self.limits = dense_limits(kinds, self.module.columns)

    @cached_property
    def kernel(self) -> CompiledModule:
        """The module as machine code."""
        return compile_module(self.module.text, self.module.inputs, self.module.outputs)

    @cached_property
    def constants(self) -> list[np.ndarray]:
        """The arrays that the module takes after the inputs."""
        return [np.ascontiguousarray(c) for c in self.module.constants]

    def run(self, leaves: list[Any]) -> Any:
        """The function's result; `leaves` are the leaves of its arguments."""
        buffers: list[np.ndarray] = []
        for i, (leaf, kind) in enumerate(zip(leaves, self.inputs, strict=True)):
            buffers += _buffers(leaf, kind, wants_order=i in self.module.ordered)
        for limit in [*self.limits] if self.limits else ():
            stored = buffers[limit.place].size
            if stored > limit.stored:
                self.limits.remove(limit)
                warn(limit.notice(stored))
        arrays = self.kernel(buffers + self.constants)
        results = list(map(_result, arrays, self.module.outputs, self.outputs))
        return jax.tree.unflatten(self.out_tree, results)

    def __str__(self) -> str:
        lines = [self.module.text]
        lines += [f"// made dense: {place}" for place in self.module.expanded]
        return "\n".join(lines)


def _lowered(captured: Captured, formats: Mapping[str, Format | None]) -> SparseProgram:
    program = captured.program
    used: set[str] = set()
    inputs = _types(captured.paths, program.inputs, formats, used)
    outputs = _types(captured.out_paths, program.outputs, formats, used)
    unused = [pattern for pattern in formats if pattern not in used]
    if unused:
        paths = ", ".join((*captured.paths, *captured.out_paths)[:12])
        raise SparseError(
            f"{unused[0]!r} matches no argument or result; there are {paths}"
        )
    module = to_linalg(program, [t.format for t in inputs], [t.format for t in outputs])
    return SparseProgram(module, inputs, outputs, captured.out_tree)


def _types(
    paths: Any, values: Any, formats: Mapping[str, Format | None], used: set[str]
) -> tuple[ArrayType, ...]:
    """Types of the inputs or outputs; patterns that match are added to `used`."""
    found: list[ArrayType] = []
    for path, value in zip(paths, values, strict=True):
        chosen = None
        for pattern, form in formats.items():
            if matches(pattern, path):
                used.add(pattern)
                chosen = form
        problem = None if chosen is None else chosen.why_not(value.shape)
        if problem:
            raise SparseError(f"{path} cannot be {chosen}: {problem}")
        found.append(ArrayType(path, value.shape, value.dtype, chosen))
    return tuple(found)


def _result(arrays: list[np.ndarray], held: Tensor, kind: ArrayType) -> Any:
    """An output in its wanted format, from the arrays of the tensor that holds it."""
    if held.format is not None:
        assert kind.format is not None, "sparse tensors are returned if they are wanted"
        return unpack(arrays, held, kind.format)
    (array,) = arrays
    array = array.transpose(held.order)
    if kind.format is None:
        return array
    return in_format(scipy_sparse.csr_array(array), kind.format)


def _typed(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def _buffers(leaf: Any, kind: ArrayType, *, wants_order: bool) -> list[np.ndarray]:
    """The arrays that store an argument in its format."""
    if kind.format is None and type(leaf) in (np.ndarray,):  # the usual case, at once
        return [np.ascontiguousarray(leaf, kind.dtype)]
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise SparseError("an argument is a ShapeDtypeStruct, which has no numbers")
    if isinstance(leaf, Tracer):
        raise SparseError(
            "sparse code was called while JAX traces, as in jit or grad, which cannot "
            "trace it: call it with arrays"
        )
    if kind.format is not None:
        return pack(leaf, kind.format, kind.dtype, kind.path, wants_order=wants_order)
    if scipy_sparse.issparse(leaf):
        checked(leaf, kind.path, wants_order=False)
        leaf = leaf.toarray()
    return [np.ascontiguousarray(leaf, kind.dtype)]
