"""Ops that move elements or say where they are stored; Pallas kernels and callbacks too."""
