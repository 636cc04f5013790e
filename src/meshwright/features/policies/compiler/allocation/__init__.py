"""Learned register allocation: which live range waits, and which loses its register.

In: a corpus (`..corpus`). Out: a policy file of a few KB that NumPy runs. Begin reading at
`train.py`; `eviction.py` and `priority.py` decide.
"""
