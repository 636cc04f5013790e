"""Subgraphs synthesised from a set of small ops so that they have given properties.

Begin at `synthesize.py`. `pieces.py` defines the ops, `choices.py` lists those that can
be applied to a value, `expression.py` is what they are put together to.
"""
