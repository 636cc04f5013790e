"""Graphs of ops to be placed on chips; begin reading at `chip_graph.py`.

In: a program, or ops and edges given by hand. Out: a `ChipGraph`, and its edges around
which other paths lead (`skip_edges.py`).
"""
