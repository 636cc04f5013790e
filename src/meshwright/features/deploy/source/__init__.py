"""Parts that all targets share: the model, options, refusals, quantization.

In: a function, a plan, or a stage of a pipeline. Out: a `SourceModel`. Begin reading at
`model.py`.
"""
