"""Compilation of MLIR modules for this CPU, and calls of the compiled code.

MLIR's Python bindings come with torch-mlir (the extra `sparse`); PyTorch is not needed.
The sparsifier turns linalg ops on sparse tensors into loops over stored elements, and
LLVM compiles the loops in this process.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from threading import Lock
from typing import Any

import numpy as np

from meshwright.errors import SparseError
from meshwright.features.sparse.heap import HEAP, RENAMED, HeapBlock
from meshwright.features.sparse.mlir.emitter import Tensor
from meshwright.features.sparse.mlir.formats import INDEX
from meshwright.search.compiled import compiled_in_place

_PIPELINE = (
    "builtin.module(sparse-assembler{direct-out=true},"
    "sparsifier{enable-runtime-library=false enable-index-optimizations=true})"
)


type Buffer = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of an array; a shape of (-1,) stands for any length."""


_ROW_DESCRIPTOR = 5
"""Numbers of the descriptor of a 1D array: two addresses, offset, extent and stride."""

_Memory: Any = ctypes.c_char * (1 << 62)
"""All memory behind an address; the array on it says how much it takes."""


class CompiledModule:
    """A compiled module as a function of the arrays that store its inputs.

    It returns the arrays that store each output; Python frees their memory.

    engine: owns the machine code.
    inputs, outputs: for each input and output, the arrays that store it.
    """

    def __init__(
        self,
        engine: Any,
        inputs: Sequence[Sequence[Buffer]],
        outputs: Sequence[Sequence[Buffer]],
    ) -> None:
        self.engine = engine
        self.lock = Lock()
        self._main = _function(engine, "_mlir_ciface_main")
        self._take = _function(engine, "take")
        given = [each for one in inputs for each in one]
        wanted = [each for one in outputs for each in one]
        numbers, all_places = _descriptors([*wanted, *given])
        ahead = iter(all_places)
        self._results = [
            [(next(ahead), len(shape), dtype) for shape, dtype in one]
            for one in outputs
        ]
        places = all_places[len(wanted) :]
        counts = [len(one) for one in inputs]
        firsts = [sum(counts[:i]) for i in range(len(counts))]
        self._given = [(places[i], n) for i, n in zip(firsts, counts, strict=True)]
        self._end = len(numbers) - sum(3 + 2 * len(shape) for shape, _ in given)
        starts = ([0] if wanted else []) + places
        count, size = len(starts), len(numbers)
        # The descriptors, their addresses, the addresses of these; a block's address.
        self._memory = memory = (ctypes.c_int64 * (size + 2 * count + 2))(*numbers)
        self._numbers = np.frombuffer(memory, np.int64)
        base = ctypes.addressof(memory)
        memory[size : size + count] = [base + 8 * start for start in starts]
        for i in range(count):
            memory[size + count + i] = base + 8 * (size + i)
        memory[-1] = base + 8 * (size + 2 * count)
        self._arguments = base + 8 * (size + count)
        self._taken = base + 8 * (size + 2 * count + 1)

    def __call__(self, buffers: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """The arrays that store each output; `buffers` must be contiguous."""
        memory, numbers, given = self._memory, self._numbers, iter(buffers)
        blocks: dict[int, HeapBlock] = {}
        with self.lock:
            for place, count in self._given:
                if count == 1:
                    _place_array(numbers, place, next(given))
                else:
                    _place_rows(numbers, place, *islice(given, count))
            self._main(self._arguments)
            self._take(self._taken)
            while address := memory[-2]:
                block = HeapBlock(address)
                blocks[block.memory] = block
                self._take(self._taken)
            filled = memory[: self._end]
        return [
            [_array(filled, place, rank, dtype, blocks) for place, rank, dtype in out]
            for out in self._results
        ]


@compiled_in_place
def _place_array(numbers: Any, place: int, array: Any) -> None:
    """Write the address of an array into its descriptor, and its length if it is 1D.

    It takes a quarter of the time of NumPy's own way to an address.
    """
    numbers[place] = numbers[place + 1] = array.ctypes.data
    if array.ndim == 1:
        numbers[place + 3] = len(array)


@compiled_in_place
def _place_rows(numbers: Any, place: int, starts: Any, columns: Any, data: Any) -> None:
    """Write the addresses and lengths of a sparse matrix's three arrays."""
    _place_array(numbers, place, starts)
    _place_array(numbers, place + _ROW_DESCRIPTOR, columns)
    _place_array(numbers, place + 2 * _ROW_DESCRIPTOR, data)


def _function(engine: Any, name: str) -> Any:
    """A function of a module; it takes an array of addresses of its arguments."""
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup(name))


def _descriptors(arrays: Sequence[Buffer]) -> tuple[list[int], list[int]]:
    """The numbers by which MLIR passes contiguous arrays, and where each array's begin.

    They are two addresses, which are 0 yet, an offset, extents, and strides in elements.
    """
    numbers: list[int] = []
    places: list[int] = []
    for shape, _ in arrays:
        places.append(len(numbers))
        strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
        numbers += [0, 0, 0, *shape, *strides]
    return numbers, places


def _array(
    numbers: list[int],
    place: int,
    rank: int,
    dtype: np.dtype[Any],
    blocks: dict[int, HeapBlock],
) -> np.ndarray:
    """The array that the descriptor at a place describes.

    blocks: memory of this run that no array owns yet, by address. Other memory, as of
        inputs and constants, is copied.
    """
    size, middle = dtype.itemsize, place + 3 + rank
    shape = numbers[place + 3 : middle]
    strides = [size * n for n in numbers[middle : middle + rank]]
    address = numbers[place + 1] + numbers[place + 2] * size
    memory = _Memory.from_address(address)
    array = np.ndarray(shape, dtype, memory, 0, strides)
    block = blocks.pop(numbers[place], None)
    if block is None:
        return array.copy()
    memory.block = block  # lives as long as the array
    return array


def compile_module(
    text: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> CompiledModule:
    """The compiled module; `SparseError` if MLIR is not installed or cannot lower it.

    inputs, outputs: arguments and results of the module's function `main`.
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
        _add_heap(mlir.ir, module)
        engine = mlir.execution_engine.ExecutionEngine(module, opt_level=3)
    return CompiledModule(engine, [*map(_buffers, inputs)], [*map(_buffers, outputs)])


def _add_heap(ir: Any, module: Any) -> None:
    """Let a lowered module allocate by the functions of `HEAP`."""
    for op in [*module.body.operations]:
        name = ir.StringAttr(op.attributes["sym_name"]).value
        if name in RENAMED:
            ir.SymbolTable.replace_all_symbol_uses(
                name, RENAMED[name], module.operation
            )
            op.operation.erase()
    for op in ir.Module.parse(HEAP).body.operations:
        module.body.append(op.operation.clone())


def _buffers(value: Tensor) -> tuple[Buffer, ...]:
    """The arrays that store an input or output."""
    dtype = np.dtype(value.dtype)
    if value.format is None:
        return ((value.shape, dtype),)
    index = np.dtype(INDEX)
    return ((-1,), index), ((-1,), index), ((-1,), dtype)


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
