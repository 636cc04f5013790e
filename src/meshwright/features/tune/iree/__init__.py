"""CPU kernels of a program: found in IREE's output, tiled as asked for, and timed.

In: StableHLO text of a JAX function (`find_kernels`). Out: `CpuKernel`s with their
    default
`Tiling` (tile sizes), and a `KernelBench` that times them with other tile sizes. Begin
reading at `kernel.py`.
"""
