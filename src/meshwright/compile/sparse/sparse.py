"""`sparse`: a function for dense arrays as sparse code, with a format for each operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import scipy.sparse as scipy_sparse

from meshwright.compile.sparse.formats import Format, parse_format
from meshwright.compile.sparse.jit import ArrayType, SparseKernel, compile_module
from meshwright.compile.sparse.linalg import LinalgModule, to_linalg
from meshwright.errors import SparseError
from meshwright.partitioner.structure.workspace import matches
from meshwright.program.capture import Captured, capture


def sparse(fn: Callable[..., Any], formats: Mapping[str, str] | None = None) -> Sparse:
    """The function with sparse code for the operands and results that `formats` names.

    fn: a function of pytrees, written for dense arrays: products, elementwise ops,
        reductions, broadcasts, reshapes and transpositions.
    formats: from patterns over the paths of arguments ("params.**.kernel"), and of results
        ("out", "out.0"), to "csr", "csc", "coo", "bsr:4x4" (with the size of blocks) or
        "dense". Everything else is dense.
    Arguments in a sparse format may be SciPy matrices in any format, or dense arrays, which
    are compressed at each call; results in one are SciPy arrays. All others are NumPy's.
    Needs the extra `sparse`. Raises `SparseError` for what has no sparse form, with its
    source line.
    """
    parsed = {pattern: parse_format(text) for pattern, text in (formats or {}).items()}
    return Sparse(fn, parsed)


@dataclass(frozen=True, eq=False)
class Sparse:
    """A function whose operands and results have formats; compiled once per signature.

    formats: by pattern over paths; `None` stands for dense.
    """

    fn: Callable[..., Any]
    formats: Mapping[str, Format | None]
    _known: dict[Any, SparseProgram] = field(
        default_factory=dict[Any, "SparseProgram"], repr=False
    )

    def lower(self, *args: Any) -> SparseProgram:
        """The function's module for arguments of these shapes, not yet compiled.

        args: arrays, SciPy matrices, or `jax.ShapeDtypeStruct`s.
        """
        leaves, tree = jax.tree.flatten(args)
        key = tree, tuple((tuple(a.shape), str(a.dtype)) for a in map(_typed, leaves))
        if key not in self._known:
            types = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in key[1]]
            captured = capture(self.fn, jax.tree.unflatten(tree, types))
            self._known[key] = _lowered(captured, self.formats)
        return self._known[key]

    def __call__(self, *args: Any) -> Any:
        """The function's result, computed by sparse code."""
        return self.lower(*args).run(jax.tree.leaves(args))


@dataclass(eq=False)
class SparseProgram:
    """A function as an MLIR module, with what its inputs and outputs are.

    module: its `text` prints. expanded: in it, source lines that needed dense copies.
    """

    module: LinalgModule
    inputs: tuple[ArrayType, ...]
    outputs: tuple[ArrayType, ...]
    out_tree: Any
    _compiled: SparseKernel | None = None

    def compile(self) -> SparseKernel:
        """The module as machine code; it is kept."""
        if self._compiled is None:
            self._compiled = compile_module(self.module.text, self.outputs)
        return self._compiled

    def run(self, leaves: list[Any]) -> Any:
        """The function's result for the leaves of its arguments."""
        compiled = self.compile()
        buffers: list[np.ndarray] = []
        for leaf, kind in zip(leaves, self.inputs, strict=True):
            buffers += _buffers(leaf, kind)
        buffers += [np.ascontiguousarray(c) for c in self.module.constants]
        found = compiled(buffers)
        results = [
            arrays[0] if kind.format is None else kind.format.unpack(arrays, kind.shape)  # pyright: ignore[reportArgumentType]
            for arrays, kind in zip(found, self.outputs, strict=True)
        ]
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
    """The types of inputs or outputs; patterns that match are added to `used`."""
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
        found.append(ArrayType(value.shape, value.dtype, chosen))
    return tuple(found)


def _typed(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else np.asarray(leaf)


def _buffers(leaf: Any, kind: ArrayType) -> list[np.ndarray]:
    """The arrays that hold an argument."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        raise SparseError("an argument is a ShapeDtypeStruct, which has no numbers")
    if kind.format is not None:
        return kind.format.pack(leaf, kind.dtype)
    dense = leaf.toarray() if scipy_sparse.issparse(leaf) else leaf
    return [np.ascontiguousarray(np.asarray(dense), kind.dtype)]
