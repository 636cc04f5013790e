"""Tile sizes of a program's CPU kernels, chosen by a learned model and by measurement.

In: a JAX function and its arguments (`tune_tiles`). Out: `TunedTiles`, with the function
and a tuning spec, an MLIR file that tells IREE the tile sizes of each kernel. Begin
reading at `tune_tiles.py`.
"""
