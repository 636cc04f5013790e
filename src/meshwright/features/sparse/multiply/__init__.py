"""Products as loops in MLIR, for which the sparsifier's own loops are too slow.

In: the tensors of a product and the factors of their dims. Out: the tensor of its
result, or `None` for a form that linalg's loops compute. Begin reading with
`products.py`, a sparse matrix times a dense one; `gustavson.py` has two sparse ones, and
`dense_products.py` two dense ones.
"""
