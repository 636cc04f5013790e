"""ONNX: programs of our IR, op by op, as graphs of ONNX.

In: a `Program`. Out: the bytes of a model. `converters.py` has the registry; the other
files fill it by family of op, as those of `program/ops` do. Begin reading at `convert.py`.
"""
