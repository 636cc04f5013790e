"""CPU kernels that IREE compiles: found in a program, tiled otherwise, run and timed.

In: StableHLO text of a JAX function (`find_kernels`). Out: `CpuKernel`s with their default
`Tiling`, and a `KernelBench` that measures others. Begin reading at `kernel.py`.
"""
