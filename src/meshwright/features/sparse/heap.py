"""Memory of compiled code: allocated while it runs, and owned by Python afterwards.

The sparsifier never frees what it allocates, intermediate results among them. So its
calls of `malloc` become calls of `reserve`, which links all blocks of one run. After
the run, Python takes the blocks: those of results live as long as their arrays, and all
others are freed.
"""

from __future__ import annotations

import ctypes

_HEADER = 64
"""Bytes before a block's memory, which hold the address of the block before."""

_LARGE = 1 << 22
"""Bytes from which huge pages are asked for, as NumPy does: without them, most of the time
of a result of 50 MB goes into its 12,500 page faults."""

_HUGE_PAGES = 14
"""MADV_HUGEPAGE of Linux. It is only advice: other systems refuse what they do not know."""

HEAP = f"""
llvm.mlir.global internal @blocks(0 : i64) : i64
llvm.func @malloc(i64) -> !llvm.ptr
llvm.func @madvise(!llvm.ptr, i64, i32) -> i32
llvm.func @reserve(%size: i64) -> (!llvm.ptr {{llvm.noalias}}) {{
  %header = llvm.mlir.constant({_HEADER} : i64) : i64
  %whole = llvm.add %size, %header : i64
  %block = llvm.call @malloc(%whole) : (i64) -> !llvm.ptr
  %large = llvm.mlir.constant({_LARGE} : i64) : i64
  %is_large = llvm.icmp "uge" %size, %large : i64
  llvm.cond_br %is_large, ^advise, ^link
^advise:
  %page = llvm.mlir.constant(4096 : i64) : i64
  %mask = llvm.mlir.constant(-4096 : i64) : i64
  %first = llvm.ptrtoint %block : !llvm.ptr to i64
  %beyond = llvm.add %first, %page : i64
  %aligned = llvm.and %beyond, %mask : i64
  %pages = llvm.inttoptr %aligned : i64 to !llvm.ptr
  %length = llvm.sub %size, %page : i64
  %huge = llvm.mlir.constant({_HUGE_PAGES} : i32) : i32
  %ignored = llvm.call @madvise(%pages, %length, %huge) : (!llvm.ptr, i64, i32) -> i32
  llvm.br ^link
^link:
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


class HeapBlock:
    """Memory that compiled code allocated; freed when the last array on it is gone."""

    __slots__ = ("address",)

    def __init__(self, address: int) -> None:
        self.address = address

    @property
    def memory(self) -> int:
        """The address that compiled code got."""
        return self.address + _HEADER

    def __del__(self) -> None:
        _free(self.address)


_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]
_free.restype = None
