"""Models of XLA's compilers, from a device program to fusions, kernels and layouts.

`targets` has the compiler of each machine: the tuple of passes in the `pipeline` of
`tpu`, `gpu`, `cpu` or `plain`. Passes that targets share are in `xla`, and the data
structures that passes read and rewrite are in `model`. Begin reading with
`model/compilation.py` and `tpu/tpu_passes.py`.

To add a pass, write it in a file of its own and list it in the pipelines that run it;
`docs/extending.md` has the steps. Buffers are assigned after all passes, in
`predict/memory/buffer_assignment.py`.
"""
