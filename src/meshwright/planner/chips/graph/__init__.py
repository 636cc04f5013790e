"""Graphs of ops to be placed on chips; begin reading at `chip_graph.py`.

In: a program, or ops and edges given by hand. Out: a `ChipGraph`, and the edges of it
that other paths go around (`skips.py`).
"""
