"""Tuning of a compiled program: layouts of its arrays, and tile sizes of its kernels.

In: a function and its arguments. Out: the layouts or tiles of least time, as records that a
later run applies. Begin reading at `tune.py`, which is `mw.tune`:

    tune_layouts.py  layouts, by the TPU compiler's estimates or by CPU times (`layouts`)
    tiles            tile sizes of IREE's CPU kernels, by CPU times
    iree             IREE's tool chain: kernels of a program, their compilation and timing
    collect          measured layouts and tilings, as data sets
    learned          models that rank layouts and tilings; TpuGraphs' formats and baselines
"""
