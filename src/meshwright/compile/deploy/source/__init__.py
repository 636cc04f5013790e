"""What all targets share: the model to deploy, options, refusals and quantization.

In: a function, a plan, or a stage of a pipeline. Out: a `SourceModel`. Begin reading at
    `model.py`.
"""
