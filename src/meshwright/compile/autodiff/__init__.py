"""Reverse mode as three transformations of programs: forward mode, unzip, transposition.

In: a function and its arguments. Out: a `Linearized`, with a program that computes the
result and saves residuals, a program that is linear in the tangents and reads them, and
the transposition of the latter, which maps cotangents. (Radul, Paszke, Frostig, Johnson
and Maclaurin, "You Only Linearize Once: Tangents Transpose to Gradients", POPL 2023.)
Begin reading with `linearize.py`, then `forward.py`, `unzip.py` and `transpose.py`, each of
which takes a program and returns one; `typing.py` says what a linear program is, and
`check.py` checks that a program is one.
"""
