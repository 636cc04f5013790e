"""Memory of compiled code: allocated while it runs, and owned by Python afterwards.

The sparsifier never frees what it allocates, intermediate results among them. So its
calls of `malloc` become calls of `reserve`, which links all blocks of one run. After
the run, Python takes the blocks: those of results live as long as their arrays, and all
others are freed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_HEADER = 64
"""Bytes before a block's memory, which hold the address of the block before."""

HEAP = f"""
llvm.mlir.global internal @blocks(0 : i64) : i64
llvm.func @malloc(i64) -> !llvm.ptr
llvm.func @reserve(%size: i64) -> (!llvm.ptr {{llvm.noalias}}) {{
  %header = llvm.mlir.constant({_HEADER} : i64) : i64
  %whole = llvm.add %size, %header : i64
  %block = llvm.call @malloc(%whole) : (i64) -> !llvm.ptr
  %blocks = llvm.mlir.addressof @blocks : !llvm.ptr
  %before = llvm.load %blocks : !llvm.ptr -> i64
  llvm.store %before, %block : i64, !llvm.ptr
  %number = llvm.ptrtoint %block : !llvm.ptr to i64
  llvm.store %number, %blocks : i64, !llvm.ptr
  %memory = llvm.getelementptr %block[{_HEADER}] : (!llvm.ptr) -> !llvm.ptr, i8
  llvm.return %memory : !llvm.ptr
}}
llvm.func @keep(%memory: !llvm.ptr) {{
  llvm.return
}}
llvm.func @take() -> i64 {{
  %blocks = llvm.mlir.addressof @blocks : !llvm.ptr
  %number = llvm.load %blocks : !llvm.ptr -> i64
  %none = llvm.mlir.constant(0 : i64) : i64
  %is_last = llvm.icmp "eq" %number, %none : i64
  llvm.cond_br %is_last, ^done, ^next
^next:
  %block = llvm.inttoptr %number : i64 to !llvm.ptr
  %before = llvm.load %block : !llvm.ptr -> i64
  llvm.store %before, %blocks : i64, !llvm.ptr
  llvm.br ^done
^done:
  llvm.return %number : i64
}}
"""
"""Functions in the dialect `llvm`: `reserve` and `keep` stand for `malloc` and `free`,
and `take` unlinks a block of this run and returns its address, or 0."""

RENAMED = {"malloc": "reserve", "free": "keep"}


class Block:
    """Memory that compiled code allocated; freed when the last array on it is gone."""

    __slots__ = ("__array_interface__", "address")

    def __init__(self, address: int) -> None:
        self.address = address
        self.__array_interface__: dict[str, Any] = {}

    @property
    def memory(self) -> int:
        """The address that compiled code got."""
        return self.address + _HEADER

    def array(self, numbers: list[int], dtype: np.dtype[Any]) -> np.ndarray:
        """The array on this memory that a descriptor describes."""
        self.__array_interface__ = interface(numbers, dtype)
        return np.asarray(self)

    def __del__(self) -> None:
        _free(self.address)


def interface(numbers: list[int], dtype: np.dtype[Any]) -> dict[str, Any]:
    """NumPy's description of memory, from the numbers of MLIR's descriptor.

    numbers: two addresses, an offset in elements, then extents and strides.
    """
    rank = (len(numbers) - 3) // 2
    size = dtype.itemsize
    return {
        "version": 3,
        "typestr": dtype.str,
        "shape": tuple(numbers[3 : 3 + rank]),
        "strides": tuple(size * n for n in numbers[3 + rank :]),
        "data": (numbers[1] + numbers[2] * size, False),
    }


_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]
_free.restype = None
