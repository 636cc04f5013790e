"""Sparse and dense code from one program, by MLIR's sparsifier.

In: a function that is written for dense arrays, and storage formats for some of its
operands and results. Out: a `Sparse`, which compiles the function for this CPU, and
takes and returns SciPy matrices in these formats. The function becomes linalg ops on
tensors with sparse encodings (`linalg.py`). MLIR's sparsifier turns these into loops
over the stored elements, and LLVM compiles them (`jit.py`, which needs the extra
`sparse`; memory is in `heap.py`). Products are written as loops in `multiply`. Without
formats, the same path makes dense code. Begin reading with `sparse.py`; `mlir/formats.py`
defines the formats, and `storage.py` checks and converts SciPy's arrays.
"""
