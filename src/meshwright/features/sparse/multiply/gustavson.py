"""Products of two sparse matrices with a sparse result, row by row.

A row of the result is the sum of rows of the second matrix. It is summed in a dense row,
and its columns are listed as they appear, so they are not in order. (F. G. Gustavson,
"Two Fast Algorithms for Sparse Matrices", ACM TOMS 1978.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshwright.features.sparse.mlir.emitter import Emitter, Tensor, loop_order
from meshwright.features.sparse.mlir.formats import Format
from meshwright.features.sparse.mlir.scalars import (
    MLIR_DTYPES,
    binary_name,
    constant_text,
)
from meshwright.features.sparse.multiply.rows import Rows
from meshwright.program.rules.rule import Dims

_BOUNDS = """%i1 = arith.addi %i, %c1 : index
    %l = memref.load %as[%i] : memref<?xi32>
    %h = memref.load %as[%i1] : memref<?xi32>
    %low = arith.index_castui %l : i32 to index
    %high = arith.index_castui %h : i32 to index"""
"""Where row `%i` of the first matrix begins and ends."""

_ADDENDS = """%k0 = memref.load %ac[%p] : memref<?xi32>
      %k = arith.index_castui %k0 : i32 to index
      %k1 = arith.addi %k, %c1 : index
      %first = memref.load %bs[%k] : memref<?xi32>
      %last = memref.load %bs[%k1] : memref<?xi32>"""
"""Where the row of the second matrix begins and ends that element `%p` multiplies."""

_PRODUCT = """
func.func private @{name}(
    %as: memref<?xi32>, %ac: memref<?xi32>, %av: memref<?x{kind}>,
    %bs: memref<?xi32>, %bc: memref<?xi32>, %bv: memref<?x{kind}>
) -> (memref<?xi32>, memref<?xi32>, memref<?x{kind}>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = arith.constant {rows} : index
  %width = arith.constant {width} : index
  %zero = arith.constant {zero}
  %no = arith.constant 0 : i8
  %yes = arith.constant 1 : i8
  // The result has at most as many elements as products, or as a dense row, in each row.
  %most = scf.for %i = %c0 to %rows step %c1 iter_args(%sum = %c0) -> (index) {{
    {bounds}
    %count = scf.for %p = %low to %high step %c1 iter_args(%n = %c0) -> (index) {{
      {addends}
      %length = arith.subi %last, %first : i32
      %more = arith.index_castui %length : i32 to index
      %next = arith.addi %n, %more : index
      scf.yield %next : index
    }}
    %least = arith.minui %count, %width : index
    %next = arith.addi %sum, %least : index
    scf.yield %next : index
  }}
  %height = arith.addi %rows, %c1 : index
  %size = arith.addi %most, %c1 : index  // a column that was seen is written, too
  %starts = memref.alloc(%height) : memref<?xi32>
  %columns = memref.alloc(%size) : memref<?xi32>
  %data = memref.alloc(%size) : memref<?x{kind}>
  %row = memref.alloc() : memref<{width}x{kind}>
  %seen = memref.alloc() : memref<{width}xi8>
  linalg.fill ins(%zero : {kind}) outs(%row : memref<{width}x{kind}>)
  linalg.fill ins(%no : i8) outs(%seen : memref<{width}xi8>)
  %none = arith.constant 0 : i32
  memref.store %none, %starts[%c0] : memref<?xi32>
  %end = scf.for %i = %c0 to %rows step %c1 iter_args(%begin = %c0) -> (index) {{
    {bounds}
    %stop = scf.for %p = %low to %high step %c1 iter_args(%to = %begin) -> (index) {{
      {addends}
      %a = memref.load %av[%p] : memref<?x{kind}>
      %from = arith.index_castui %first : i32 to index
      %until = arith.index_castui %last : i32 to index
      %at = scf.for %q = %from to %until step %c1 iter_args(%t = %to) -> (index) {{
        %j0 = memref.load %bc[%q] : memref<?xi32>
        %j = arith.index_castui %j0 : i32 to index
        %b = memref.load %bv[%q] : memref<?x{kind}>
        %before = memref.load %row[%j] : memref<{width}x{kind}>
        %product = {multiply} %a, %b : {kind}
        %after = {add} %before, %product : {kind}
        memref.store %after, %row[%j] : memref<{width}x{kind}>
        %was = memref.load %seen[%j] : memref<{width}xi8>
        memref.store %yes, %seen[%j] : memref<{width}xi8>
        memref.store %j0, %columns[%t] : memref<?xi32>
        %is_new = arith.xori %was, %yes : i8
        %one = arith.index_castui %is_new : i8 to index
        %u = arith.addi %t, %one : index
        scf.yield %u : index
      }}
      scf.yield %at : index
    }}
    scf.for %q = %begin to %stop step %c1 {{
      %j0 = memref.load %columns[%q] : memref<?xi32>
      %j = arith.index_castui %j0 : i32 to index
      %sum = memref.load %row[%j] : memref<{width}x{kind}>
      memref.store %sum, %data[%q] : memref<?x{kind}>
      memref.store %zero, %row[%j] : memref<{width}x{kind}>
      memref.store %no, %seen[%j] : memref<{width}xi8>
    }}
    %so_far = arith.index_castui %stop : index to i32
    memref.store %so_far, %starts[%i1] : memref<?xi32>
    scf.yield %stop : index
  }}
  return %starts, %columns, %data : memref<?xi32>, memref<?xi32>, memref<?x{kind}>
}}
"""
"""The product of two matrices in compressed rows. The arrays of columns and elements are as
long as the largest result; memory that is not written takes no pages."""

_TRANSPOSE = """
func.func private @{name}(
    %as: memref<?xi32>, %ac: memref<?xi32>, %av: memref<?x{kind}>
) -> (memref<?xi32>, memref<?xi32>, memref<?x{kind}>) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %rows = arith.constant {rows} : index
  %width = arith.constant {width} : index
  %none = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %t = memref.load %as[%rows] : memref<?xi32>
  %total = arith.index_castui %t : i32 to index
  %height = arith.addi %width, %c1 : index
  %starts = memref.alloc(%height) : memref<?xi32>
  %columns = memref.alloc(%total) : memref<?xi32>
  %data = memref.alloc(%total) : memref<?x{kind}>
  linalg.fill ins(%none : i32) outs(%starts : memref<?xi32>)
  scf.for %p = %c0 to %total step %c1 {{
    %j0 = memref.load %ac[%p] : memref<?xi32>
    %j = arith.index_castui %j0 : i32 to index
    %n = memref.load %starts[%j] : memref<?xi32>
    %more = arith.addi %n, %one : i32
    memref.store %more, %starts[%j] : memref<?xi32>
  }}
  // Starts of the rows of the transpose, each moved on to its end while it is filled.
  scf.for %j = %c0 to %height step %c1 iter_args(%sum = %none) -> (i32) {{
    %n = memref.load %starts[%j] : memref<?xi32>
    memref.store %sum, %starts[%j] : memref<?xi32>
    %next = arith.addi %sum, %n : i32
    scf.yield %next : i32
  }}
  scf.for %i = %c0 to %rows step %c1 {{
    {bounds}
    %row = arith.index_castui %i : index to i32
    scf.for %p = %low to %high step %c1 {{
      %j0 = memref.load %ac[%p] : memref<?xi32>
      %j = arith.index_castui %j0 : i32 to index
      %place = memref.load %starts[%j] : memref<?xi32>
      %at = arith.index_castui %place : i32 to index
      %after = arith.addi %place, %one : i32
      memref.store %after, %starts[%j] : memref<?xi32>
      %value = memref.load %av[%p] : memref<?x{kind}>
      memref.store %row, %columns[%at] : memref<?xi32>
      memref.store %value, %data[%at] : memref<?x{kind}>
    }}
  }}
  scf.for %n = %c0 to %width step %c1 {{
    %j = arith.subi %width, %n : index
    %j1 = arith.subi %j, %c1 : index
    %end = memref.load %starts[%j1] : memref<?xi32>
    memref.store %end, %starts[%j] : memref<?xi32>
  }}
  memref.store %none, %starts[%c0] : memref<?xi32>
  return %starts, %columns, %data : memref<?xi32>, memref<?xi32>, memref<?x{kind}>
}}
"""
"""The transpose of a matrix in compressed rows."""


def sparse_times_sparse(
    code: Emitter, tensors: Sequence[Tensor], maps: Sequence[Dims], out_dims: Dims
) -> Tensor | None:
    """The sparse product of two matrices in compressed rows; `None` for other forms.

    maps, out_dims: the factors of each dim of the operands and of the result.
    """
    if any(t.format != Format("csr") for t in tensors) or len(out_dims) != 2:
        return None
    held = [loop_order(t, dims) for t, dims in zip(tensors, maps, strict=True)]
    out = [fs[0] for fs in out_dims]
    shared = set(held[0]) & set(held[1])
    if len(shared) != 1 or shared & set(out):
        return None
    (summed,) = shared
    first = 0 if held[0][1] == summed or held[1][1] != summed else 1
    pairs = [(tensors[i], held[i]) for i in (first, 1 - first)]
    left, right = (
        tensor if factors.index(summed) == place else transpose(code, tensor)
        for (tensor, factors), place in zip(pairs, (1, 0), strict=True)
    )
    shape = left.shape[0], right.shape[1]
    rows = next(f for f in pairs[0][1] if f != summed)
    order = (0, 1) if out[0] == rows else (1, 0)
    result = Tensor("", shape, left.dtype, Format("csr"), order)
    text = {"rows": shape[0], "width": shape[1]}
    ops = {"multiply": "mul", "add": "add"}
    ops = {name: binary_name(op, left.dtype) for name, op in ops.items()}
    found = _called(code, _PRODUCT, [left, right], result, {**text, **ops})
    code.unordered.add(found.name)
    return found


def transpose(code: Emitter, tensor: Tensor) -> Tensor:
    """The tensor with the transpose of its stored matrix, so that the value is the same."""
    rows, width = tensor.shape
    order = tuple(1 - d for d in tensor.order)
    result = replace(tensor, shape=(width, rows), order=order)
    return _called(code, _TRANSPOSE, [tensor], result, {"rows": rows, "width": width})


def _called(
    code: Emitter,
    text: str,
    tensors: Sequence[Tensor],
    result: Tensor,
    fields: dict[str, object],
) -> Tensor:
    """The result of a function in MLIR, which is added to the module.

    text: the function, with names in braces for `fields`.
    """
    kind = MLIR_DTYPES[result.dtype]
    name = f"sparse_{len(code.functions)}"
    zero = constant_text(0, result.dtype)
    fields |= {"bounds": _BOUNDS, "addends": _ADDENDS}
    code.functions.append(text.format(name=name, kind=kind, zero=zero, **fields))
    rows = [Rows.of(code, tensor) for tensor in tensors]
    given = ", ".join(f"{r.starts}, {r.columns}, {r.data}" for r in rows)
    one = f"memref<?xi32>, memref<?xi32>, memref<?x{kind}>"
    types = ", ".join([one] * len(rows))
    found = code.fresh()
    code.lines.append(f"{found}:3 = call @{name}({given}) : ({types}) -> ({one})")
    arrays = [
        code.emit(
            f"bufferization.to_tensor {found}#{i} restrict writable : "
            f"memref<?x{k}> to tensor<?x{k}>"
        )
        for i, k in enumerate(("i32", "i32", kind))
    ]
    right = (
        f"sparse_tensor.assemble ({arrays[0]}, {arrays[1]}), {arrays[2]} : "
        f"(tensor<?xi32>, tensor<?xi32>), tensor<?x{kind}> to {code.type_of(result)}"
    )
    return replace(result, name=code.emit(right))
