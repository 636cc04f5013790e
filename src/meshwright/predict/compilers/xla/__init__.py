"""Passes that the TPU, GPU and CPU compilers share, one file each, under XLA's names."""
