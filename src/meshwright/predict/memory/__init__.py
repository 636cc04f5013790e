"""Memory of one device: buffer assignment, packing, and the curve of live bytes.

Begin reading at `buffer_assignment.py`, which also decides which buffers are aliased.
"""
