"""Compilers: a device program in, its fusions, kernels, layouts and buffers out.

`targets` has the compiler of each machine: the tuple of passes in the `pipeline` of `tpu`,
`gpu`, `cpu` or `plain`. Passes that targets share are in `xla`, and what passes read and
rewrite is in `hlo`. Begin reading with `hlo/compilation.py` and `tpu/pipeline.py`.
"""
