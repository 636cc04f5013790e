"""Properties of a program: mixing, depth and shape (alphaNAS, OOPSLA 2022).

Begin at `properties.py`. `regions.py` and `windows.py` say which positions of an op's
operands a position of its result depends on; `mixing.py` and `depth.py` are the two
properties that follow from them.
"""
