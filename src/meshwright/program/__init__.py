"""The program: what a JAX function computes, as plain data, and what each op means.

In: a JAX function with its arguments. Out: a `Program`, the intermediate representation
of all other subpackages. Begin reading at `ir/program.py`, then `rules/rule.py` (what an op
does to its dims), `ops/` (the rule of each op) and `capture/capture.py` (from JAX).
"""
