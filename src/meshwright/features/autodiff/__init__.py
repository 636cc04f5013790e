"""Reverse-mode differentiation as three transformations of programs.

Forward mode adds tangents to a program. Unzip splits that program in two: one that
computes the result and saves residuals, and one that is linear in the tangents and
reads the residuals. Transposition turns the linear program into one that maps
cotangents backwards. (Radul, Paszke, Frostig, Johnson and Maclaurin, "You Only
Linearize Once: Tangents Transpose to Gradients", POPL 2023.)

In: a function and its arguments. Out: a `Linearized` with these programs. Begin reading
with `linearize.py`, then `forward.py`, `unzip.py` and `transpose.py`. `typing.py`
defines linear programs, and `check.py` checks them.
"""
