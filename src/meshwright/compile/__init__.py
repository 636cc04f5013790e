"""Compilation below a plan: derivatives, sparse code, tuning, and other runtimes.

In: a JAX function and its arguments. Out: programs, compiled functions or folders. Begin
reading with the folder that you need:

    autodiff  reverse mode in three steps: forward mode, unzip, transposition; residuals
    sparse    sparse and dense code from one program, by MLIR's sparsifier
    tune      layouts of values and tiles of kernels, by estimates or measurement
    deploy    a function as a folder that runs without JAX
"""
