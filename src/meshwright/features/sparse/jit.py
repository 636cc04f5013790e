"""Compilation of MLIR modules for this CPU, and calls of the compiled code.

MLIR's Python bindings come with torch-mlir (the extra `sparse`); PyTorch is not needed.
The sparsifier turns linalg ops on sparse tensors into loops over stored elements, and
LLVM compiles the loops in this process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np

from meshwright.errors import SparseError
from meshwright.features.sparse.emitter import Tensor
from meshwright.features.sparse.formats import INDEX
from meshwright.features.sparse.heap import HEAP, RENAMED, Block, interface

_PIPELINE = (
    "builtin.module(sparse-assembler{direct-out=true},"
    "sparsifier{enable-runtime-library=false enable-index-optimizations=true})"
)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A compiled module as a function of the arrays that store its inputs.

    It returns the arrays that store each output; Python frees their memory.

    engine: owns the machine code. outputs: for each output, the rank and dtype of each
        array that stores it.
    main: runs the module, given an array of pointers to its arguments' addresses.
    take: unlinks a block of memory of the last run, and returns its address, or 0.
    """

    engine: Any
    outputs: tuple[tuple[tuple[int, np.dtype[Any]], ...], ...]
    main: Any
    take: Any
    lock: Lock = field(default_factory=Lock)

    def __call__(self, buffers: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """The arrays that store each output; `buffers` must be contiguous."""
        sizes = [3 + 2 * rank for out in self.outputs for rank, _ in out]
        numbers, offsets = [0] * sum(sizes), [0] if sizes else []
        for buffer in buffers:
            offsets.append(len(numbers))
            numbers += _descriptor(buffer)
        memory = (ctypes.c_int64 * (len(numbers) + 2 * len(offsets)))(*numbers)
        start = ctypes.addressof(memory)
        middle, last = len(numbers), len(numbers) + len(offsets)
        memory[middle:last] = [start + 8 * offset for offset in offsets]
        memory[last:] = range(start + 8 * middle, start + 8 * last, 8)
        blocks: dict[int, Block] = {}
        with self.lock:
            self.main(start + 8 * last)
            for address in iter(self.take, 0):
                block = Block(address)
                blocks[block.memory] = block
        filled = memory[: sum(sizes)]
        found: list[list[np.ndarray]] = []
        for out in self.outputs:
            found.append([])
            for rank, dtype in out:
                size = 3 + 2 * rank
                found[-1].append(_array(filled[:size], dtype, blocks))
                filled = filled[size:]
        return found


def compile_module(text: str, outputs: Sequence[Tensor]) -> Kernel:
    """The compiled module; `SparseError` if MLIR is not installed or cannot lower it.

    outputs: the results of the module's function `main`.
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
    main, take = (
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup(name))
        for name in ("_mlir_ciface_main", "take")
    )
    taken = ctypes.c_int64()
    place = ctypes.c_void_p(ctypes.addressof(taken))

    def take_block() -> int:
        take(ctypes.addressof(place))
        return taken.value

    return Kernel(engine, tuple(map(_buffers, outputs)), main, take_block)


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


def _buffers(out: Tensor) -> tuple[tuple[int, np.dtype[Any]], ...]:
    """Rank and dtype of each array that stores an output."""
    dtype = np.dtype(out.dtype)
    if out.format is None:
        return ((len(out.shape), dtype),)
    index = np.dtype(INDEX)
    return (1, index), (1, index), (1, dtype)


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


def _descriptor(array: np.ndarray) -> list[int]:
    """The numbers by which MLIR passes a contiguous array; strides count elements."""
    address = array.__array_interface__["data"][0]
    shape = array.shape
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return [address, address, 0, *shape, *reversed(strides)]


def _array(
    numbers: list[int], dtype: np.dtype[Any], blocks: dict[int, Block]
) -> np.ndarray:
    """The array that a returned descriptor describes.

    blocks: memory of this run that no array owns yet, by address. Other memory, as of
        inputs and constants, is copied.
    """
    block = blocks.pop(numbers[0], None)
    if block is not None:
        return block.array(numbers, dtype)
    described = type("_Borrowed", (), {})()
    described.__array_interface__ = interface(numbers, dtype)
    return np.array(described)
