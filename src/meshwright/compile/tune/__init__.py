"""Tuning of a compiled program: layouts of its arrays, and tile sizes of its kernels.

`tune.py` chooses layouts by the TPU compiler's estimates or by CPU times. `tiles`
chooses the tile sizes of IREE's CPU kernels by CPU times.
"""
