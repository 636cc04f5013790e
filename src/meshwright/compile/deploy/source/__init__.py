"""The model that all targets read, its options, refusals and quantization.

In: a function or a plan. Out: a `SourceModel`. Begin reading at `model.py`.
"""
