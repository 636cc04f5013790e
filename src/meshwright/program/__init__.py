"""The program: the computation of a JAX function as plain data, and what ops mean.

In: a JAX function with its arguments. Out: a `Program`, the intermediate representation
that all other subpackages work on. Begin reading at `ir/program.py`, then
`rules/rule.py` (how an op's dims can be sharded), `ops/` (the rule of each op) and
`capture/capture.py` (tracing a JAX function into a program).
"""
