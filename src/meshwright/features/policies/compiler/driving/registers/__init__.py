"""Register allocation in a build: what it costs a function, and the better of two.

Begin reading at `allocating.py`; `costs.py` says what is measured.
"""
