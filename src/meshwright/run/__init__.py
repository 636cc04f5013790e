"""Execution of device programs: on this process's devices, or by ahead-of-time compilers.

In: a device program. Out: its results, or a compiler's report on it. Begin reading at
`local/spmd.py` and `compilers/confirm.py`.
"""
