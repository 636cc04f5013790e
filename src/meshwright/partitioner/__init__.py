"""The partitioner: from a program and tactics to shardings and a device program.

In: a `Program`, a mesh and tactics. Out: a device program with local shapes and explicit
collectives. Begin reading at `decide.py`, which calls `tactics`, `propagate` and `lower`
in that order.
"""
