"""What all targets read: the model, the options, and how they refuse or quantize.

In: a function or a plan. Out: a `SourceModel`. Begin reading at `model.py`.
"""
