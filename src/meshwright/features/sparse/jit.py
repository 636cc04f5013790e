"""Compilation of MLIR modules for this CPU, and calls of the compiled code.

MLIR's Python bindings come with torch-mlir (the extra `sparse`); PyTorch is not needed.
The sparsifier turns linalg ops on sparse tensors into loops over stored elements, and
LLVM compiles the loops in this process.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from meshwright.errors import SparseError
from meshwright.features.sparse.formats import INDEX, Format

_PIPELINE = (
    "builtin.module(sparse-assembler{direct-out=true},"
    "sparsifier{enable-runtime-library=false enable-index-optimizations=true})"
)


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The shape, NumPy dtype and storage format of an input or output."""

    shape: tuple[int, ...]
    dtype: str
    format: Format | None

    @property
    def buffers(self) -> list[tuple[int, str]]:
        """Rank and dtype of each array that stores a value of this type.

        A sparse matrix has arrays of positions and coordinates, and then one of
        elements.
        """
        if self.format is None:
            return [(len(self.shape), self.dtype)]
        return [(1, INDEX)] * self.format.num_buffers + [(1, self.dtype)]


type Kernel = Callable[[Sequence[np.ndarray]], list[list[np.ndarray]]]
"""A compiled module as a function of the arrays that store its inputs.

It returns the arrays that store each output; Python frees their memory.
"""


def compile_module(text: str, outputs: Sequence[ArrayType]) -> Kernel:
    """The compiled module; `SparseError` if MLIR is not installed or cannot lower it.

    outputs: types of the results of the module's function `main`.
    """
    mlir = _mlir()
    with mlir.ir.Context():
        try:
            module = mlir.ir.Module.parse(text)
            mlir.passmanager.PassManager.parse(_PIPELINE).run(module.operation)
        except mlir.ir.MLIRError as error:
            raise SparseError(
                "MLIR's sparsifier cannot compile this program with these formats; try "
                f"other formats, or dense for one operand. It says: {error}"
            ) from error
        engine = mlir.execution_engine.ExecutionEngine(module, opt_level=3)
    kinds = [_memref(rank) for out in outputs for rank, _ in out.buffers]
    fields = [(f"out{i}", kind) for i, kind in enumerate(kinds)]
    results = type("Results", (ctypes.Structure,), {"_fields_": fields})

    def run(buffers: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        filled = results()
        arguments = (filled, *map(_descriptor, buffers))
        pointers = [ctypes.pointer(ctypes.pointer(each)) for each in arguments]
        engine.invoke("main", *pointers)
        arrays = iter([getattr(filled, name) for name, _ in fields])
        owned = {buffer.ctypes.data for buffer in buffers}
        return [
            [_array(next(arrays), rank, dtype, owned) for rank, dtype in out.buffers]
            for out in outputs
        ]

    return run


def _mlir() -> Any:
    """The package of MLIR's Python bindings, with the modules that are needed."""
    try:
        for name in ("ir", "passmanager", "execution_engine"):
            import_module(f"torch_mlir.{name}")
        return import_module("torch_mlir")
    except ImportError as error:
        raise SparseError(
            "MLIR is not installed: `pip install 'meshwright[sparse]'` installs "
            f"torch-mlir, whose bindings compile sparse code ({error})"
        ) from error


# -- memory ----------------------------------------------------------------------------


@cache
def _memref(rank: int) -> type[ctypes.Structure]:
    """The C struct by which MLIR passes an array of this rank."""
    number = ctypes.c_int64
    fields: list[tuple[str, Any]] = [
        ("allocated", ctypes.c_void_p),
        ("aligned", ctypes.c_void_p),
        ("offset", number),
    ]
    if rank:
        fields += [("shape", number * rank), ("strides", number * rank)]
    return type(f"Memref{rank}", (ctypes.Structure,), {"_fields_": fields})


def _descriptor(array: np.ndarray) -> ctypes.Structure:
    """The C struct that describes a NumPy array's memory; strides count elements."""
    found: Any = _memref(array.ndim)()
    found.allocated = found.aligned = array.ctypes.data
    found.offset = 0
    if array.ndim:
        found.shape = tuple(array.shape)
        found.strides = tuple(s // array.itemsize for s in array.strides)
    return found


def _array(found: Any, rank: int, dtype: str, owned: set[int]) -> np.ndarray:
    """A NumPy array on memory that compiled code allocated; it is freed with the array.

    found: the C struct that describes the memory.
    owned: addresses that belong to other arrays, such as inputs; their data is copied.
        The address of the new array is added.
    """
    kind = np.dtype(dtype)
    shape = tuple(found.shape) if rank else ()
    strides = tuple(s * kind.itemsize for s in found.strides) if rank else ()
    size = kind.itemsize * int(np.prod(shape, dtype=np.int64))
    start = found.aligned + found.offset * kind.itemsize
    memory = (ctypes.c_char * max(size, 1)).from_address(start)
    array = np.ndarray(shape, kind, memory, 0, strides)
    if found.allocated in owned:
        return array.copy()
    owned.add(found.allocated)
    weakref.finalize(memory, _LIBC.free, found.allocated)
    return array


_LIBC = ctypes.CDLL(None)
_LIBC.free.argtypes = [ctypes.c_void_p]
