"""StableHLO text, and the targets whose own compilers read it: IREE and LiteRT.

In: a model. Out: the files of a target. Begin reading at `lowering.py`.
"""
