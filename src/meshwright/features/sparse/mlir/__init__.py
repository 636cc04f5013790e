"""The text of MLIR: tensors in storage formats, ops over loops, conversions."""
