"""Programs that run: on this process's devices, and through the real compilers.

In: a device program. Out: results, or what a compiler says of it. Begin reading at
`local/spmd.py`.
"""
