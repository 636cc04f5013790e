"""Sparse and dense code from one program, by MLIR's sparsifier.

In: a function written for dense arrays, and formats for some of its operands and results.
Out: a `Sparse`, compiled for this CPU, that takes and returns SciPy matrices in these
formats. A program becomes linalg ops on tensors with sparse encodings (`linalg.py`); MLIR
makes loops over stored elements of them and compiles these (`jit.py`, which needs the extra
`sparse`). Without formats the same path makes dense code. Begin reading with `sparse.py`;
`formats.py` says how each format lies in memory.
"""
