"""Targets whose own compilers read StableHLO text: IREE and LiteRT.

In: a `SourceModel`. Out: the files of a target. Begin reading at `lowering.py`.
"""
