"""Compilers: a device program in, its fusions, kernels, layouts and buffers out.

`targets` has the compiler of each machine. A compiler is a tuple of named passes, which
stands in the `pipeline` of `tpu`, `gpu`, `cpu` or `plain`; passes that targets share are
in `xla`, and what passes read and rewrite is in `hlo`. To add a pass, write a function
from `hlo.compilation.Compilation` to a new one and list it in a pipeline. Begin reading
with `hlo/compilation.py` and `tpu/pipeline.py`.
"""
